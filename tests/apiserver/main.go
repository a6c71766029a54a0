// The real kube-apiserver, built from its own Go module, so that the tests have a judge.
//
// Only the API server needs a main of ours: etcd and kubectl are built from their modules' own main packages
// (see build.py). Nothing is changed or left out here: what answers the tests is what runs in a cluster.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
