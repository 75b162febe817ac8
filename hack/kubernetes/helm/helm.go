//go:build helm

// Package helm names the program that the chart is tested with, so that `go mod tidy` keeps what it needs in go.mod and go.sum.
// Nothing here is compiled: the program is built by its import path.
package helm

import _ "helm.sh/helm/v4/cmd/helm"
