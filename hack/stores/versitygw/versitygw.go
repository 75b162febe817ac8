//go:build versitygw

// Package versitygw names the S3 server that backups are tested and measured with, so that `go mod tidy` keeps what it needs in
// go.mod and go.sum. Nothing here is compiled: the program is built by its import path.
package versitygw

import _ "github.com/versity/versitygw/cmd/versitygw"
