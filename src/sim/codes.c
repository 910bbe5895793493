/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/codes.h"

#include "base/mem.h"

const struct sim_code sim_codes[] = {
    { 0, "SUCCESS", "Success" },
    { 1, "UNINITIALIZED", "Uninitialized" },
    { 2, "INVALID_ARGUMENT", "Invalid Argument" },
    { 3, "NOT_SUPPORTED", "Not Supported" },
    { 4, "NO_PERMISSION", "Insufficient Permissions" },
    { 5, "ALREADY_INITIALIZED", "Already Initialized" },
    { 6, "NOT_FOUND", "Not Found" },
    { 7, "INSUFFICIENT_SIZE", "Insufficient Size" },
    { 8, "INSUFFICIENT_POWER", "Insufficient External Power" },
    { 9, "DRIVER_NOT_LOADED", "Driver Not Loaded" },
    { 10, "TIMEOUT", "Timeout" },
    { 11, "IRQ_ISSUE", "Interrupt Request Issue" },
    { 12, "LIBRARY_NOT_FOUND", "NVML Shared Library Not Found" },
    { 13, "FUNCTION_NOT_FOUND", "Function Not Found" },
    { 14, "CORRUPTED_INFOROM", "Corrupted infoROM" },
    { 15, "GPU_IS_LOST", "GPU is lost" },
    { 16, "RESET_REQUIRED", "GPU requires reset" },
    { 17, "OPERATING_SYSTEM", "GPU access blocked by the operating system" },
    { 18, "LIB_RM_VERSION_MISMATCH", "Driver/library version mismatch" },
    { 19, "IN_USE", "In use by another client" },
    { 20, "MEMORY", "Insufficient Memory" },
    { 21, "NO_DATA", "No data" },
    { 22, "VGPU_ECC_NOT_SUPPORTED", "vGPU ECC not supported" },
    { 23, "INSUFFICIENT_RESOURCES", "Insufficient Resources" },
    { 24, "FREQ_NOT_SUPPORTED", "Frequency not supported" },
    { 25, "ARGUMENT_VERSION_MISMATCH", "Argument version mismatch" },
    { 26, "DEPRECATED", "Requested functionality has been deprecated" },
    { 27, "NOT_READY", "The system is not ready" },
    { 28, "GPU_NOT_FOUND", "No GPUs were found" },
    { 29, "INVALID_STATE", "Invalid state" },
    { 30, "RESET_TYPE_NOT_SUPPORTED", "Reset type not supported" },
    { 999, "UNKNOWN", "Unknown Error" },
};
const size_t n_sim_codes = ARRAY_LEN(sim_codes);

const struct sim_code *sim_code_of(uint32_t value)
{
    for (size_t i = 0; i < n_sim_codes; i++)
        if (sim_codes[i].value == value)
            return &sim_codes[i];
    return NULL;
}
