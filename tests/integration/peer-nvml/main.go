// SPDX-License-Identifier: Apache-2.0

// Command peer-nvml looks at a host through NVIDIA's own Go bindings, as the device plugin, feature
// discovery and the DRA driver do: "peer-nvml list" prints every gpu and MIG device, one a line;
// "peer-nvml wait" registers for XID events on every gpu and prints the first one.
package main

import (
	"fmt"
	"os"

	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func fail(what string, ret nvml.Return) {
	if ret != nvml.SUCCESS {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, nvml.ErrorString(ret))
		os.Exit(1)
	}
}

func must(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func listMig(d device.Device) {
	must("visit MIG devices", d.VisitMigDevices(func(slot int, m device.MigDevice) error {
		uuid, ret := m.GetUUID()
		fail("MIG uuid", ret)
		profile, err := m.GetProfile()
		must("MIG profile", err)
		gi, ret := m.GetGpuInstanceId()
		fail("GPU instance id", ret)
		ci, ret := m.GetComputeInstanceId()
		fail("compute instance id", ret)
		memory, ret := m.GetMemoryInfo()
		fail("MIG memory", ret)
		fmt.Printf("part %s slot %d gi %d ci %d profile %s memory %d\n", uuid, slot, gi, ci, profile, memory.Total>>20)
		return nil
	}))
}

func list() {
	// The very instance that looks symbols up must be the one that is initialised.
	lib := nvml.New()
	fail("init", lib.Init())
	must("visit devices", device.New(lib).VisitDevices(func(index int, d device.Device) error {
		uuid, ret := d.GetUUID()
		fail("uuid", ret)
		name, ret := d.GetName()
		fail("name", ret)
		minor, ret := d.GetMinorNumber()
		fail("minor", ret)
		memory, ret := d.GetMemoryInfo()
		total := memory.Total >> 20
		if ret == nvml.ERROR_NOT_SUPPORTED {
			total = 0
		} else {
			fail("memory", ret)
		}
		busID, err := d.GetPCIBusID()
		must("bus id", err)
		capability, err := d.GetCudaComputeCapabilityAsString()
		must("compute capability", err)
		fmt.Printf("gpu %d %s minor %d pci %s memory %d cc %s name %s\n", index, uuid, minor, busID, total, capability, name)
		enabled, err := d.IsMigEnabled()
		must("MIG mode", err)
		if enabled {
			listMig(d)
		}
		return nil
	}))
	fail("shutdown", lib.Shutdown())
}

func wait() {
	fail("init", nvml.Init())
	set, ret := nvml.EventSetCreate()
	fail("event set", ret)
	n, ret := nvml.DeviceGetCount()
	fail("count", ret)
	for i := 0; i < n; i++ {
		d, ret := nvml.DeviceGetHandleByIndex(i)
		fail("handle", ret)
		mask, ret := d.GetSupportedEventTypes()
		fail("supported events", ret)
		fail("register", d.RegisterEvents(mask&uint64(nvml.EventTypeXidCriticalError), set))
	}
	fmt.Println("registered")
	for {
		e, ret := set.Wait(10000)
		fail("wait", ret)
		uuid, ret := e.Device.GetUUID()
		fail("uuid of the event", ret)
		fmt.Printf("xid %d %s gi %d ci %d\n", e.EventData, uuid, e.GpuInstanceId, e.ComputeInstanceId)
		if e.EventData == 79 {
			break
		}
	}
	fail("free", set.Free())
	fail("shutdown", nvml.Shutdown())
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "wait" {
		wait()
	} else {
		list()
	}
}
