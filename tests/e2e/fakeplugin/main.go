// SPDX-License-Identifier: Apache-2.0

// fakeplugin is the smallest honest peer of a kubelet, used to prove the test bed itself:
//
//	fakeplugin device  speaks deviceplugin/v1beta1 and answers Allocate with a CDI device name
//	fakeplugin dra     speaks DRA through the kubeletplugin helper, publishes one ResourceSlice, prepares claims with CDI
//
// It writes its CDI spec itself; each device adds the environment variable FOO=<device> to its container.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	dp "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

var (
	kubeletDir = flag.String("kubelet-dir", "/var/lib/kubelet", "the kubelet's root directory as seen from here")
	cdiDir     = flag.String("cdi-dir", "/var/run/cdi", "where to write the CDI spec")
	kind       = flag.String("cdi-kind", "example.com/dev", "CDI vendor/class")
	name       = flag.String("name", "", "resource name (device) or driver name (dra)")
	count      = flag.Int("n", 4, "how many devices")
	node       = flag.String("node", "localhost", "node name (dra)")
	edits      = flag.String("edits", "", "JSON file with more CDI containerEdits (deviceNodes, mounts, hooks) for every device")
	kubeconfig = flag.String("kubeconfig", "", "kubeconfig (dra)")
)

func writeCDI(file string, devices map[string]string) error {
	type m = map[string]any
	var list []m
	for d, v := range devices {
		e := m{}
		if *edits != "" {
			b, err := os.ReadFile(*edits)
			if err == nil {
				err = json.Unmarshal(b, &e)
			}
			if err != nil {
				return err
			}
		}
		e["env"] = []string{"FOO=" + v}
		list = append(list, m{"name": d, "containerEdits": e})
	}
	b, _ := json.MarshalIndent(m{"cdiVersion": "0.6.0", "kind": *kind, "devices": list}, "", " ")
	p := filepath.Join(*cdiDir, file)
	if err := os.WriteFile(p+".tmp", b, 0o644); err != nil {
		return err
	}
	return os.Rename(p+".tmp", p)
}

type server struct {
	dp.UnimplementedDevicePluginServer
	ids []string
}

func (s *server) GetDevicePluginOptions(context.Context, *dp.Empty) (*dp.DevicePluginOptions, error) {
	return &dp.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (s *server) ListAndWatch(_ *dp.Empty, st dp.DevicePlugin_ListAndWatchServer) error {
	var r dp.ListAndWatchResponse
	for _, id := range s.ids {
		r.Devices = append(r.Devices, &dp.Device{ID: id, Health: dp.Healthy})
	}
	if err := st.Send(&r); err != nil {
		return err
	}
	<-st.Context().Done()
	return nil
}

func (s *server) GetPreferredAllocation(_ context.Context, q *dp.PreferredAllocationRequest) (*dp.PreferredAllocationResponse, error) {
	r := &dp.PreferredAllocationResponse{}
	for _, c := range q.ContainerRequests {
		log.Printf("GetPreferredAllocation %d of %v", c.AllocationSize, c.AvailableDeviceIDs)
		r.ContainerResponses = append(r.ContainerResponses, &dp.ContainerPreferredAllocationResponse{DeviceIDs: c.AvailableDeviceIDs[:c.AllocationSize]})
	}
	return r, nil
}

func (s *server) Allocate(_ context.Context, q *dp.AllocateRequest) (*dp.AllocateResponse, error) {
	r := &dp.AllocateResponse{}
	for _, c := range q.ContainerRequests {
		log.Printf("Allocate %v", c.DevicesIds)
		a := &dp.ContainerAllocateResponse{}
		for _, id := range c.DevicesIds {
			a.CdiDevices = append(a.CdiDevices, &dp.CDIDevice{Name: *kind + "=" + id})
		}
		r.ContainerResponses = append(r.ContainerResponses, a)
	}
	return r, nil
}

func runDevice(ctx context.Context) error {
	s := &server{}
	devs := map[string]string{}
	for i := range *count {
		id := fmt.Sprintf("dev%d", i)
		s.ids = append(s.ids, id)
		devs[id] = id
	}
	if err := writeCDI("fakeplugin-device.json", devs); err != nil {
		return err
	}
	dir := filepath.Join(*kubeletDir, "device-plugins")
	sock := filepath.Join(dir, "fake.sock")
	os.Remove(sock)
	l, err := net.Listen("unix", sock)
	if err != nil {
		return err
	}
	g := grpc.NewServer()
	dp.RegisterDevicePluginServer(g, s)
	go g.Serve(l)
	defer g.Stop()
	c, err := grpc.NewClient("unix://"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	rctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = dp.NewRegistrationClient(c).Register(rctx, &dp.RegisterRequest{Version: dp.Version, Endpoint: "fake.sock", ResourceName: *name,
		Options: &dp.DevicePluginOptions{GetPreferredAllocationAvailable: true}})
	c.Close()
	if err != nil {
		return err
	}
	log.Printf("registered %s with %d devices", *name, *count)
	<-ctx.Done()
	return nil
}

type driver struct{ prepared map[string]string }

func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		var r kubeletplugin.PrepareResult
		for _, a := range c.Status.Allocation.Devices.Results {
			if a.Driver != *name {
				continue
			}
			id := string(c.UID) + "-" + a.Device
			d.prepared[id] = a.Device
			r.Devices = append(r.Devices, kubeletplugin.Device{Requests: []string{a.Request}, PoolName: a.Pool, DeviceName: a.Device,
				CDIDeviceIDs: []string{*kind + "=" + id}})
		}
		log.Printf("prepare %s/%s: %v", c.Namespace, c.Name, r.Devices)
		out[c.UID] = r
	}
	return out, writeCDI("fakeplugin-dra.json", d.prepared)
}

func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, c := range claims {
		log.Printf("unprepare %s", c.UID)
		for id := range d.prepared {
			if len(id) > len(c.UID) && id[:len(c.UID)] == string(c.UID) {
				delete(d.prepared, id)
			}
		}
		out[c.UID] = nil
	}
	return out, nil
}

func (d *driver) HandleError(_ context.Context, err error, msg string) {
	log.Printf("%s: %v", msg, err)
}

func runDRA(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	data := filepath.Join(*kubeletDir, "plugins", *name)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	h, err := kubeletplugin.Start(ctx, &driver{prepared: map[string]string{}}, kubeletplugin.KubeClient(cs), kubeletplugin.NodeName(*node),
		kubeletplugin.DriverName(*name), kubeletplugin.RegistrarDirectoryPath(filepath.Join(*kubeletDir, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data))
	if err != nil {
		return err
	}
	defer h.Stop()
	var devs []resourceapi.Device
	for i := range *count {
		idx, model := int64(i), "fake"
		devs = append(devs, resourceapi.Device{Name: fmt.Sprintf("dra%d", i), Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"index": {IntValue: &idx}, "model": {StringValue: &model}}})
	}
	if err := h.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		*node: {Slices: []resourceslice.Slice{{Devices: devs}}}}}); err != nil {
		return err
	}
	log.Printf("published %d devices of %s", *count, *name)
	for ctx.Err() == nil {
		if s := h.RegistrationStatus(); s != nil {
			log.Printf("kubelet registration: %+v", s.PluginRegistered)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	<-ctx.Done()
	return nil
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: fakeplugin device|dra [flags]")
	}
	mode := os.Args[1]
	flag.CommandLine.Parse(os.Args[2:])
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	run := map[string]func(context.Context) error{"device": runDevice, "dra": runDRA}[mode]
	if run == nil {
		log.Fatalf("unknown mode %q", mode)
	}
	if *name == "" {
		*name = map[string]string{"device": "example.com/dev", "dra": "dra.example.com"}[mode]
	}
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}
