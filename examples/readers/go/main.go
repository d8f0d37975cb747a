// Reads the metadata of a request with upstream's own reader, and prints the devices.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

func main() {
	if len(os.Args) != 5 {
		fail(fmt.Errorf("usage: reader claim|template NAME REQUEST DRIVER"))
	}
	kind, name, request, driver := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	read, readOne := devicemetadata.ReadResourceClaimMetadata, devicemetadata.ReadResourceClaimMetadataWithDriverName
	folder := "resourceclaims"
	if kind == "template" {
		read, readOne = devicemetadata.ReadResourceClaimTemplateMetadata, devicemetadata.ReadResourceClaimTemplateMetadataWithDriverName
		folder = "resourceclaimtemplates"
	}
	all, err := read(name, request)
	fail(err)
	one, err := readOne(driver, name, request)
	fail(err)
	file, err := os.Open(fmt.Sprintf("/var/run/kubernetes.io/dra-device-attributes/%s/%s/%s/%s-metadata.json", folder, name, request, driver))
	fail(err)
	var decoded metadata.DeviceMetadata
	var invalid error
	fail(devicemetadata.DecodeMetadataFromStream(json.NewDecoder(file), &decoded, devicemetadata.DecodeMetadataWithValidationResult(&invalid)))
	fail(invalid)
	for _, document := range []*metadata.DeviceMetadata{all, one, &decoded} {
		for _, request := range document.Requests {
			for _, device := range request.Devices {
				fmt.Printf("%s %d %s %s %s\n", document.Name, document.Generation, request.Name, device.Driver, device.Name)
			}
		}
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
