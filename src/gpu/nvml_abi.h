/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NVML's binary interface, in our own words: handles, numbers, struct layouts and the calls by
 * name. It serves both sides: a client takes symbols by dlsym and casts them to nv_fn_<symbol>; the
 * simulated library defines the symbols. Facts: spec/nvml-and-cuda.md 1.3 to 1.7. LP64 (x86-64 and
 * aarch64 alike).
 *
 * A struct with a `version` member carries NV_VERSION(struct, n) in it; the caller sets it, the
 * library refuses one that it does not know (NV_E_VERSION) and never writes past that layout.
 */
#include <stddef.h>
#include <stdint.h>

_Static_assert(sizeof(void *) == 8 && sizeof(long) == 8, "layouts below are LP64");

/* ---- handles: one pointer wide each ---- */

typedef struct nv_device_opaque *nv_device; /* a gpu, or a MIG device */
typedef struct nv_gi_opaque *nv_gi;         /* GPU instance */
typedef struct nv_ci_opaque *nv_ci;         /* compute instance */
typedef struct nv_event_set_opaque *nv_event_set;
typedef struct nv_system_event_set_opaque *nv_system_event_set;
typedef struct nv_gpm_sample_opaque *nv_gpm_sample;

#define NV_VERSION(type, n) ((uint32_t)(sizeof(type) | (unsigned)(n) << 24))

/* ---- return codes (1.3) ---- */

typedef enum nv_return {
    NV_OK = 0,
    NV_E_UNINITIALIZED = 1,
    NV_E_ARGUMENT = 2,
    NV_E_NOT_SUPPORTED = 3,
    NV_E_NO_PERMISSION = 4,
    NV_E_ALREADY_INITIALIZED = 5,
    NV_E_NOT_FOUND = 6,
    NV_E_SIZE = 7,
    NV_E_POWER = 8,
    NV_E_DRIVER_NOT_LOADED = 9,
    NV_E_TIMEOUT = 10,
    NV_E_IRQ = 11,
    NV_E_LIBRARY_NOT_FOUND = 12,
    NV_E_FUNCTION_NOT_FOUND = 13,
    NV_E_INFOROM = 14,
    NV_E_GPU_IS_LOST = 15,
    NV_E_RESET_REQUIRED = 16,
    NV_E_OPERATING_SYSTEM = 17,
    NV_E_VERSION_MISMATCH = 18, /* library against kernel module */
    NV_E_IN_USE = 19,
    NV_E_MEMORY = 20,
    NV_E_NO_DATA = 21,
    NV_E_VGPU_ECC = 22,
    NV_E_RESOURCES = 23,
    NV_E_FREQUENCY = 24,
    NV_E_VERSION = 25, /* of a struct */
    NV_E_DEPRECATED = 26,
    NV_E_NOT_READY = 27,
    NV_E_GPU_NOT_FOUND = 28,
    NV_E_STATE = 29,
    NV_E_RESET_TYPE = 30,
    NV_E_UNKNOWN = 999,
} nv_return;

/* ---- sizes of texts (1.4) ---- */

enum {
    NV_NAME_SIZE = 64,
    NV_NAME_V2_SIZE = 96,
    NV_UUID_SIZE = 80,
    NV_UUID_V2_SIZE = 96,
    NV_SERIAL_SIZE = 30,
    NV_PART_NUMBER_SIZE = 80,
    NV_VBIOS_SIZE = 32,
    NV_DRIVER_VERSION_SIZE = 80,
    NV_NVML_VERSION_SIZE = 80,
    NV_INFOROM_SIZE = 16,
    NV_BUS_ID_SIZE = 32,
    NV_BUS_ID_LEGACY_SIZE = 16,
    NV_UUID_ASCII_SIZE = 41,
    NV_UUID_BINARY_SIZE = 16,
    NV_GSP_VERSION_SIZE = 64,
    NV_PROFILE_NAME_SIZE = 96,
    NV_LINKS_MAX = 36, /* of the newest interface; ask field NV_FIELD_LINK_COUNT */
    NV_NVLINK_FIRMWARES_MAX = 100,
    NV_GPM_METRICS_MAX = 333,
};

/* Instance ids of an event that belongs to no instance, and of a process outside MIG. */
#define NV_NO_INSTANCE 0xFFFFFFFFu
/* Memory of a process, and other u64 values, that the driver cannot tell. */
#define NV_VALUE_NOT_AVAILABLE UINT64_MAX

/* ---- enumerations (1.6); all are passed as 32-bit numbers ---- */

enum nv_init_flag { NV_INIT_NO_GPUS = 1, NV_INIT_NO_ATTACH = 2, NV_INIT_FORCE = 4 };
enum nv_feature { NV_FEATURE_OFF = 0, NV_FEATURE_ON = 1 };

enum nv_brand {
    NV_BRAND_UNKNOWN = 0,
    NV_BRAND_QUADRO = 1,
    NV_BRAND_TESLA = 2,
    NV_BRAND_NVS = 3,
    NV_BRAND_GRID = 4,
    NV_BRAND_GEFORCE = 5,
    NV_BRAND_TITAN = 6,
    NV_BRAND_VAPPS = 7,
    NV_BRAND_VPC = 8,
    NV_BRAND_VCS = 9,
    NV_BRAND_VWS = 10,
    NV_BRAND_CLOUD_GAMING = 11,
    NV_BRAND_QUADRO_RTX = 12,
    NV_BRAND_NVIDIA_RTX = 13,
    NV_BRAND_NVIDIA = 14,
    NV_BRAND_GEFORCE_RTX = 15,
    NV_BRAND_TITAN_RTX = 16,
};

#define NV_ARCH_UNKNOWN 0xFFFFFFFFu
enum nv_arch {
    NV_ARCH_KEPLER = 2,
    NV_ARCH_MAXWELL = 3,
    NV_ARCH_PASCAL = 4,
    NV_ARCH_VOLTA = 5,
    NV_ARCH_TURING = 6,
    NV_ARCH_AMPERE = 7,
    NV_ARCH_ADA = 8,
    NV_ARCH_HOPPER = 9,
    NV_ARCH_BLACKWELL = 10,
    NV_ARCH_RUBIN = 13,
};

enum nv_topology {
    NV_TOPOLOGY_BOARD = 0,
    NV_TOPOLOGY_SWITCH = 10,
    NV_TOPOLOGY_SWITCHES = 20,
    NV_TOPOLOGY_HOST_BRIDGE = 30,
    NV_TOPOLOGY_NODE = 40,
    NV_TOPOLOGY_SYSTEM = 50,
};

enum nv_p2p_status {
    NV_P2P_OK = 0,
    NV_P2P_CHIPSET = 1,
    NV_P2P_GPU = 2,
    NV_P2P_IOH = 3,
    NV_P2P_REGISTRY = 4,
    NV_P2P_NOT_SUPPORTED = 5,
    NV_P2P_UNKNOWN = 6,
};
enum nv_p2p_index {
    NV_P2P_READ = 0,
    NV_P2P_WRITE = 1,
    NV_P2P_NVLINK = 2,
    NV_P2P_ATOMICS = 3,
    NV_P2P_PCI = 4,
};

enum nv_link_remote {
    NV_REMOTE_GPU = 0,
    NV_REMOTE_NPU = 1,
    NV_REMOTE_SWITCH = 2,
    NV_REMOTE_UNKNOWN = 255,
};
enum nv_link_capability {
    NV_LINK_CAP_P2P = 0,
    NV_LINK_CAP_SYSMEM = 1,
    NV_LINK_CAP_P2P_ATOMICS = 2,
    NV_LINK_CAP_SYSMEM_ATOMICS = 3,
    NV_LINK_CAP_SLI = 4,
    NV_LINK_CAP_VALID = 5,
};
enum nv_link_error {
    NV_LINK_ERROR_REPLAY = 0,
    NV_LINK_ERROR_RECOVERY = 1,
    NV_LINK_ERROR_CRC_FLIT = 2,
    NV_LINK_ERROR_CRC_DATA = 3,
    NV_LINK_ERROR_ECC_DATA = 4,
};
enum nv_link_version { /* codes, not generations */
                       NV_LINK_1_0 = 1,
                       NV_LINK_2_0 = 2,
                       NV_LINK_2_2 = 3,
                       NV_LINK_3_0 = 4,
                       NV_LINK_3_1 = 5,
                       NV_LINK_4_0 = 6,
                       NV_LINK_5_0 = 7,
                       NV_LINK_6_0 = 8,
};

enum nv_compute_mode {
    NV_COMPUTE_DEFAULT = 0,
    NV_COMPUTE_EXCLUSIVE_THREAD = 1,
    NV_COMPUTE_PROHIBITED = 2,
    NV_COMPUTE_EXCLUSIVE_PROCESS = 3,
};
enum nv_virtualization {
    NV_VIRTUAL_NONE = 0,
    NV_VIRTUAL_PASSTHROUGH = 1,
    NV_VIRTUAL_VGPU = 2,
    NV_VIRTUAL_HOST_VGPU = 3,
    NV_VIRTUAL_HOST_VSGA = 4,
};
enum nv_clock { NV_CLOCK_GRAPHICS = 0, NV_CLOCK_SM = 1, NV_CLOCK_MEMORY = 2, NV_CLOCK_VIDEO = 3 };
enum nv_pcie_counter { NV_PCIE_TX = 0, NV_PCIE_RX = 1 }; /* KB/s */

enum nv_ecc_error { NV_ECC_CORRECTED = 0, NV_ECC_UNCORRECTED = 1 };
enum nv_ecc_counter { NV_ECC_VOLATILE = 0, NV_ECC_AGGREGATE = 1 };
enum nv_ecc_location {
    NV_ECC_L1 = 0,
    NV_ECC_L2 = 1,
    NV_ECC_DRAM = 2,
    NV_ECC_REGISTER_FILE = 3,
    NV_ECC_TEXTURE = 4,
    NV_ECC_TEXTURE_SHARED = 5,
    NV_ECC_CBU = 6,
    NV_ECC_SRAM = 7,
};
enum nv_temperature_threshold {
    NV_THRESHOLD_SHUTDOWN = 0,
    NV_THRESHOLD_SLOWDOWN = 1,
    NV_THRESHOLD_MEMORY_MAX = 2,
    NV_THRESHOLD_GPU_MAX = 3,
    NV_THRESHOLD_ACOUSTIC_MIN = 4,
    NV_THRESHOLD_ACOUSTIC_CURRENT = 5,
    NV_THRESHOLD_ACOUSTIC_MAX = 6,
    NV_THRESHOLD_GPS = 7,
};
enum nv_perf_policy {
    NV_PERF_POWER = 0,
    NV_PERF_THERMAL = 1,
    NV_PERF_SYNC_BOOST = 2,
    NV_PERF_BOARD_LIMIT = 3,
    NV_PERF_LOW_UTILIZATION = 4,
    NV_PERF_RELIABILITY = 5,
    NV_PERF_APP_CLOCKS = 10,
    NV_PERF_BASE_CLOCKS = 11,
};
enum nv_clock_reason { /* bits */
                       NV_REASON_IDLE = 0x1,
                       NV_REASON_APP_CLOCKS = 0x2,
                       NV_REASON_SW_POWER_CAP = 0x4,
                       NV_REASON_HW_SLOWDOWN = 0x8,
                       NV_REASON_SYNC_BOOST = 0x10,
                       NV_REASON_SW_THERMAL = 0x20,
                       NV_REASON_HW_THERMAL = 0x40,
                       NV_REASON_HW_POWER_BRAKE = 0x80,
                       NV_REASON_DISPLAY_CLOCK = 0x100,
};
enum nv_event { /* bits */
                NV_EVENT_ECC_SINGLE = 0x1,
                NV_EVENT_ECC_DOUBLE = 0x2,
                NV_EVENT_PSTATE = 0x4,
                NV_EVENT_XID = 0x8,
                NV_EVENT_CLOCK = 0x10,
                NV_EVENT_POWER_SOURCE = 0x80,
                NV_EVENT_MIG_CONFIG = 0x100,
                NV_EVENT_ECC_STORM = 0x200,
                NV_EVENT_DRAM_RETIREMENT = 0x400,
                NV_EVENT_DRAM_RETIREMENT_FAILURE = 0x800,
                NV_EVENT_POISON = 0x1000,
                NV_EVENT_POISON_FATAL = 0x2000,
                NV_EVENT_UNAVAILABLE = 0x4000,
                NV_EVENT_RECOVERY = 0x8000,
};
enum nv_system_event { NV_SYSTEM_DRIVER_UNBIND = 1, NV_SYSTEM_DRIVER_BIND = 2 }; /* bits */

enum nv_fabric_state {
    NV_FABRIC_NOT_SUPPORTED = 0,
    NV_FABRIC_NOT_STARTED = 1,
    NV_FABRIC_IN_PROGRESS = 2,
    NV_FABRIC_COMPLETED = 3, /* only now `status` means something */
};
#define NV_FABRIC_HEALTH_GOOD 0x1AAu /* all items "false", without partition information */
enum nv_fabric_summary {
    NV_FABRIC_SUMMARY_NOT_SUPPORTED = 0,
    NV_FABRIC_SUMMARY_HEALTHY = 1,
    NV_FABRIC_SUMMARY_UNHEALTHY = 2,
    NV_FABRIC_SUMMARY_LIMITED = 3,
};
enum nv_recovery { /* value of NV_FIELD_RECOVERY_ACTION */
                   NV_RECOVERY_NONE = 0,
                   NV_RECOVERY_RESET = 1,
                   NV_RECOVERY_REBOOT = 2,
                   NV_RECOVERY_DRAIN_P2P = 3,
                   NV_RECOVERY_DRAIN_RESET = 4,
                   NV_RECOVERY_IMEX = 5,
};
enum nv_addressing { NV_ADDRESSING_NONE = 0, NV_ADDRESSING_HMM = 1, NV_ADDRESSING_ATS = 2 };

enum nv_gi_profile { /* argument of the profile calls; not the profile's id */
                     NV_GI_1_SLICE = 0,
                     NV_GI_2_SLICE = 1,
                     NV_GI_3_SLICE = 2,
                     NV_GI_4_SLICE = 3,
                     NV_GI_7_SLICE = 4,
                     NV_GI_8_SLICE = 5,
                     NV_GI_6_SLICE = 6,
                     NV_GI_1_SLICE_REV1 = 7, /* +me */
                     NV_GI_2_SLICE_REV1 = 8, /* +me */
                     NV_GI_1_SLICE_REV2 = 9, /* double memory */
                     NV_GI_1_SLICE_GFX = 10,
                     NV_GI_2_SLICE_GFX = 11,
                     NV_GI_4_SLICE_GFX = 12,
                     NV_GI_1_SLICE_NO_ME = 13,
                     NV_GI_2_SLICE_NO_ME = 14,
                     NV_GI_1_SLICE_ALL_ME = 15,
                     NV_GI_2_SLICE_ALL_ME = 16,
                     NV_GI_3_SLICE_GFX = 17,
                     NV_GI_PROFILES = 18,
};
enum nv_ci_profile {
    NV_CI_1_SLICE = 0,
    NV_CI_2_SLICE = 1,
    NV_CI_3_SLICE = 2,
    NV_CI_4_SLICE = 3,
    NV_CI_7_SLICE = 4,
    NV_CI_8_SLICE = 5,
    NV_CI_6_SLICE = 6,
    NV_CI_1_SLICE_REV1 = 7,
    NV_CI_7_SLICE_MULTI = 8,
    NV_CI_PROFILES = 9,
};
enum { NV_CI_ENGINE_SHARED = 0, NV_CI_ENGINES = 1 };
enum nv_gi_capability { NV_GI_CAP_P2P = 1, NV_GI_CAP_GFX = 2 };
enum nv_ci_capability { NV_CI_CAP_GFX = 1 };

enum nv_value_type {
    NV_VALUE_DOUBLE = 0,
    NV_VALUE_U32 = 1,
    NV_VALUE_ULONG = 2,
    NV_VALUE_U64 = 3,
    NV_VALUE_I64 = 4,
    NV_VALUE_I32 = 5,
    NV_VALUE_U16 = 6,
};

enum nv_field {
    NV_FIELD_MEMORY_TEMPERATURE = 82,
    NV_FIELD_ENERGY = 83, /* mJ since the driver was loaded */
    NV_FIELD_LINK_COUNT = 91,
    NV_FIELD_PCIE_REPLAYS = 94,
    NV_FIELD_LINK_DATA_TX = 138,
    NV_FIELD_LINK_DATA_RX = 139,
    NV_FIELD_LINK_RAW_TX = 140,
    NV_FIELD_LINK_RAW_RX = 141,
    NV_FIELD_REMAP_CORRECTED = 142,
    NV_FIELD_REMAP_UNCORRECTED = 143,
    NV_FIELD_REMAP_PENDING = 144,
    NV_FIELD_REMAP_FAILURE = 145,
    NV_FIELD_SWITCH_LINK_COUNT = 147,
    NV_FIELD_LINK_REPLAY = 161,
    NV_FIELD_LINK_RECOVERY = 162,
    NV_FIELD_LINK_CRC = 163,
    NV_FIELD_LINK_SPEED = 164,
    NV_FIELD_LINK_STATE = 165,
    NV_FIELD_LINK_VERSION = 166,
    NV_FIELD_C2C_COUNT = 170,
    NV_FIELD_C2C_STATUS = 171,
    NV_FIELD_C2C_BANDWIDTH = 172,
    NV_FIELD_PCIE_ERRORS_FIRST = 173,
    NV_FIELD_PCIE_ERRORS_LAST = 183,
    NV_FIELD_MIG_WITHOUT_RESET = 184,
    NV_FIELD_POWER_AVERAGE = 185,
    NV_FIELD_POWER_INSTANT = 186,
    NV_FIELD_POWER_MIN_LIMIT = 187,
    NV_FIELD_POWER_MAX_LIMIT = 188,
    NV_FIELD_POWER_DEFAULT_LIMIT = 189,
    NV_FIELD_POWER_CURRENT_LIMIT = 190,
    NV_FIELD_TLIMIT_FIRST = 193,
    NV_FIELD_TLIMIT_LAST = 196,
    NV_FIELD_PROFILES_WITHOUT_MIG = 199,
    NV_FIELD_LINK5_FIRST = 201,
    NV_FIELD_LINK5_LAST = 222,
    NV_FIELD_RESET_STATUS = 226,       /* deprecated */
    NV_FIELD_DRAIN_RESET_STATUS = 227, /* deprecated */
    NV_FIELD_RECOVERY_ACTION = 230,
    NV_FIELD_REASONS_FIRST = 269,
    NV_FIELD_REASONS_LAST = 271,
    NV_FIELD_INACTIVE_REMAPS_FIRST = 301,
    NV_FIELD_INACTIVE_REMAPS_LAST = 302,
    NV_FIELD_LAST = 302,
};

/* ---- structs (1.5) ---- */

struct nv_pci_info {
    char bus_id_legacy[NV_BUS_ID_LEGACY_SIZE];
    uint32_t domain, bus, device, pci_device, pci_subsystem;
    char bus_id[NV_BUS_ID_SIZE];
};
struct nv_pci_info_ext {
    uint32_t version, domain, bus, device, pci_device, pci_subsystem, base_class, sub_class;
    char bus_id[NV_BUS_ID_SIZE];
};
struct nv_memory {
    uint64_t total, free, used;
};
struct nv_memory_v2 {
    uint32_t version;
    uint64_t total, reserved, free, used;
};
struct nv_bar1_memory {
    uint64_t total, free, used;
};
struct nv_utilization {
    uint32_t gpu, memory;
};
struct nv_process_v1 {
    uint32_t pid;
    uint64_t used_memory;
};
struct nv_process { /* _v2 and _v3 */
    uint32_t pid;
    uint64_t used_memory;
    uint32_t gi, ci;
};
struct nv_process_detail {
    uint32_t pid;
    uint64_t used_memory;
    uint32_t gi, ci;
    uint64_t used_protected_memory;
};
struct nv_process_detail_list {
    uint32_t version, mode, n;
    struct nv_process_detail *items;
};
struct nv_attributes {
    uint32_t multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gi_slices, ci_slices;
    uint64_t memory_mb;
};
struct nv_placement { /* of a GPU or compute instance; memory or compute slices */
    uint32_t start, size;
};
struct nv_gi_profile_info {
    uint32_t id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs,
        ofas;
    uint64_t memory_mb;
};
struct nv_gi_profile_info_v2 {
    uint32_t version, id, p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders,
        jpegs, ofas;
    uint64_t memory_mb;
    char name[NV_PROFILE_NAME_SIZE];
};
struct nv_gi_profile_info_v3 {
    uint32_t version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders,
        jpegs, ofas;
    uint64_t memory_mb;
    char name[NV_PROFILE_NAME_SIZE];
    uint32_t capabilities;
};
struct nv_gi_info {
    nv_device device;
    uint32_t id, profile;
    struct nv_placement placement;
};
struct nv_ci_profile_info {
    uint32_t id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
};
struct nv_ci_profile_info_v2 {
    uint32_t version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders,
        jpegs, ofas;
    char name[NV_PROFILE_NAME_SIZE];
};
struct nv_ci_profile_info_v3 {
    uint32_t version, id, slices, instances, multiprocessors, copy_engines, decoders, encoders,
        jpegs, ofas;
    char name[NV_PROFILE_NAME_SIZE];
    uint32_t capabilities;
};
struct nv_ci_info_v1 {
    nv_device device;
    nv_gi gi;
    uint32_t id, profile;
};
struct nv_ci_info { /* _v2; device is the MIG device */
    nv_device device;
    nv_gi gi;
    uint32_t id, profile;
    struct nv_placement placement;
};
struct nv_event_data_v1 {
    nv_device device;
    uint64_t type, data;
};
struct nv_event_data { /* _v2 */
    nv_device device;
    uint64_t type, data;
    uint32_t gi, ci;
};
struct nv_system_event_create {
    uint32_t version;
    nv_system_event_set set;
};
struct nv_system_event_free {
    uint32_t version;
    nv_system_event_set set;
};
struct nv_system_event_register {
    uint32_t version;
    uint64_t types;
    nv_system_event_set set;
};
struct nv_system_event_data {
    uint64_t type;
    uint32_t gpu_id;
};
struct nv_system_event_wait {
    uint32_t version, timeout_ms;
    nv_system_event_set set;
    struct nv_system_event_data *data;
    uint32_t data_size, n_events;
};
struct nv_fabric_info_v1 {
    unsigned char cluster[16];
    uint32_t status, clique;
    uint8_t state;
};
struct nv_fabric_info_v2 {
    uint32_t version;
    unsigned char cluster[16];
    uint32_t status, clique;
    uint8_t state;
    uint32_t health;
};
struct nv_fabric_info_v3 {
    uint32_t version;
    unsigned char cluster[16];
    uint32_t status, clique;
    uint8_t state;
    uint32_t health;
    uint8_t summary;
};
struct nv_platform_info { /* v1 names the second text "rack guid"; same layout */
    uint32_t version;
    unsigned char ib_guid[16], chassis_serial[16];
    uint8_t slot, tray, host_id, peer_type, module_id;
};
struct nv_addressing_mode {
    uint32_t version, value;
};
struct nv_c2c_mode {
    uint32_t enabled;
};
struct nv_repair_status {
    uint32_t version, channel_pending, tpc_pending;
};
struct nv_remap_histogram {
    uint32_t max, high, partial, low, none;
};
struct nv_sram_ecc_status {
    uint32_t version;
    uint64_t aggregate_parity, aggregate_secded, aggregate_corrected;
    uint64_t volatile_parity, volatile_secded, volatile_corrected;
    uint64_t bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
    uint32_t threshold_exceeded;
};
struct nv_temperature {
    uint32_t version, sensor;
    int32_t celsius;
};
struct nv_margin_temperature {
    uint32_t version;
    int32_t celsius;
};
struct nv_capabilities {
    uint32_t version, mask;
};
enum { NV_UUID_TYPE_ASCII = 1, NV_UUID_TYPE_BINARY = 2 };
struct nv_uuid {
    uint32_t version, type;
    union {
        char text[NV_UUID_ASCII_SIZE];
        unsigned char bytes[NV_UUID_BINARY_SIZE];
    } value;
};
struct nv_pdi {
    uint32_t version;
    uint64_t value;
};
union nv_value {
    double real;
    int32_t i32;
    uint32_t u32;
    uint64_t u64;
    int64_t i64;
    uint16_t u16;
};
struct nv_field_value {
    uint32_t field, scope;
    int64_t timestamp_us, latency_us;
    uint32_t type; /* enum nv_value_type */
    nv_return ret;
    union nv_value value;
};
struct nv_violation_time {
    uint64_t reference_us, violation_ns;
};
struct nv_sample {
    uint64_t timestamp_us;
    union nv_value value;
};
struct nv_process_utilization {
    uint32_t pid;
    uint64_t timestamp_us;
    uint32_t sm, memory, encoder, decoder;
};
struct nv_driver_branch {
    uint32_t version;
    char branch[NV_DRIVER_VERSION_SIZE];
};
struct nv_conf_compute_state {
    uint32_t environment, cc_feature, dev_tools;
};
struct nv_conf_compute_settings {
    uint32_t version, environment, cc_feature, dev_tools, multi_gpu;
};
struct nv_nvlink_firmware {
    uint8_t kind;
    uint32_t major, minor, patch;
};
struct nv_nvlink_info_v1 {
    uint32_t version, encrypted;
};
struct nv_nvlink_info {
    uint32_t version, encrypted;
    struct nv_nvlink_firmware firmware[NV_NVLINK_FIRMWARES_MAX];
    uint32_t n_firmware;
};
struct nv_excluded_device {
    struct nv_pci_info pci;
    char uuid[NV_UUID_SIZE];
};
struct nv_gpm_metric {
    uint32_t metric;
    nv_return ret;
    double value;
    struct {
        char *short_name, *long_name, *unit;
    } info;
};
struct nv_gpm_metrics {
    uint32_t version, n; /* version: plain 1 */
    nv_gpm_sample sample1, sample2;
    struct nv_gpm_metric items[NV_GPM_METRICS_MAX];
};
struct nv_gpm_support {
    uint32_t version, supported; /* version: plain 1 */
};

#include "gpu/nvml_layout.h"
