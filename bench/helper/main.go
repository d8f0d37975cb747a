// Command helper is the peer of the benchmark: a driver that does nothing on upstream's kubelet plugin helper,
// with device metadata enabled.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	metadatav1alpha1 "k8s.io/dynamic-resource-allocation/api/metadata/v1alpha1"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

type driver struct{ name string }

func (d driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var devices []kubeletplugin.Device
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver != d.name {
				continue
			}
			model := "LATEST-GPU-MODEL"
			devices = append(devices, kubeletplugin.Device{
				Requests:     []string{result.Request},
				PoolName:     result.Pool,
				DeviceName:   result.Device,
				CDIDeviceIDs: []string{fmt.Sprintf("%s/device=%s-%s", d.name, claim.UID, result.Device)},
				Metadata: &kubeletplugin.DeviceMetadata{
					Attributes: map[string]resourceapi.DeviceAttribute{"model": {StringValue: &model}},
				},
			})
		}
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices}
	}
	return results, nil
}

func (d driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = nil
	}
	return results, nil
}

func (d driver) HandleError(_ context.Context, err error, message string) { log.Print(message, ": ", err) }

func (d driver) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return nil
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the cluster")
	node := flag.String("node-name", "", "the node")
	name := flag.String("driver", "", "the driver's name")
	kubelet := flag.String("kubelet-dir", "", "the kubelet's folder")
	cdi := flag.String("cdi-dir", "", "where runtimes look for specs")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	// No throttle of the client's own: the server's time is to be compared, not the client's patience.
	config.QPS, config.Burst = -1, 0
	data := filepath.Join(*kubelet, "plugins", *name)
	if err := os.MkdirAll(data, 0o700); err != nil {
		log.Fatal(err)
	}
	helper, err := kubeletplugin.Start(ctx, driver{*name},
		kubeletplugin.DriverName(*name),
		kubeletplugin.NodeName(*node),
		kubeletplugin.KubeClient(kubernetes.NewForConfigOrDie(config)),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(*kubelet, "plugins_registry")),
		kubeletplugin.RegistrarSocketFilename(*name+"@reg.sock"),
		kubeletplugin.Serialize(false),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{
			metadatav1beta1.SchemeGroupVersion, metadatav1alpha1.SchemeGroupVersion,
		}),
		kubeletplugin.CDIDirectory(*cdi),
	)
	if err != nil {
		log.Fatal(err)
	}
	<-ctx.Done()
	helper.Stop()
}
