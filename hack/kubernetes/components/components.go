//go:build components

// Package components names the Kubernetes programs that the test cluster runs, so that `go mod tidy` keeps what they
// need in go.mod and go.sum. Nothing here is compiled: the harness builds each program by its import path.
package components

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-proxy"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/cmd/kubectl"
	_ "k8s.io/kubernetes/cmd/kubelet"
)
