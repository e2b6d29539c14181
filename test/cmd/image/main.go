// Command image puts a binary into a container image, without an engine and without a registry.
//
//	image -binary FILE -arch ARCH -time SECONDS -name NAME:TAG FILE
//
// Docker's builder writes times into an image that are never the same again. This image is the same whenever it is made of the same
// binary: nothing in it is younger than the commit, and its certificates are those of a module in go.mod. It is an archive
// for `docker load` and its kin, and what it says of user, environment and entry point is what deploy/Dockerfile says.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	installed    = "usr/local/bin/sqllock"
	certificates = "etc/ssl/certs/ca-certificates.crt"
)

// The configuration of an image, as https://github.com/opencontainers/image-spec says, with the fields that are needed.
type (
	image struct {
		Created      time.Time `json:"created"`
		Architecture string    `json:"architecture"`
		OS           string    `json:"os"`
		Config       config    `json:"config"`
		RootFS       rootFS    `json:"rootfs"`
	}
	config struct {
		User       string   `json:"User"`
		Env        []string `json:"Env"`
		Entrypoint []string `json:"Entrypoint"`
	}
	rootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
)

// manifest is what `docker load` looks for in an archive.
type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func main() {
	binary := flag.String("binary", "", "the binary, a `file`")
	arch := flag.String("arch", "", "the `architecture` of the binary")
	seconds := flag.Int64("time", 0, "the time of all files, in `seconds` since 1970")
	name := flag.String("name", "", "the `name` of the image, with its tag")
	flag.Parse()

	if err := write(flag.Arg(0), *binary, *arch, *name, time.Unix(*seconds, 0).UTC()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write writes the image to the file.
func write(file, binary, arch, name string, at time.Time) (err error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}

	var layer bytes.Buffer
	if err := writeTar(&layer, at, entry{installed, 0o755, program}, entry{certificates, 0o644, roots()}); err != nil {
		return err
	}

	const layerName = "layer.tar"

	configuration, err := json.Marshal(image{
		Created: at, Architecture: arch, OS: "linux",
		Config: config{
			User:       "65532:65532",
			Env:        []string{"SQLLOCK_REQUIRE_DSN=1"},
			Entrypoint: []string{"/" + installed},
		},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
	})
	if err != nil {
		return err
	}

	list, err := json.Marshal([]manifest{{Config: "config.json", RepoTags: []string{name}, Layers: []string{layerName}}})
	if err != nil {
		return err
	}

	archive, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, archive.Close()) }()

	compressed := gzip.NewWriter(archive)
	if err := writeTar(compressed, at,
		entry{"manifest.json", 0o644, list}, entry{"config.json", 0o644, configuration}, entry{layerName, 0o644, layer.Bytes()},
	); err != nil {
		return err
	}

	return compressed.Close()
}

type entry struct {
	name    string
	mode    int64
	content []byte
}

// writeTar writes files that belong to root. The folders that they are in are made by who unpacks it.
func writeTar(to io.Writer, at time.Time, entries ...entry) error {
	archive := tar.NewWriter(to)

	for _, e := range entries {
		header := tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.content)), ModTime: at, Format: tar.FormatPAX}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}

		if _, err := archive.Write(e.content); err != nil {
			return err
		}
	}

	return archive.Close()
}

// roots are the certificates of those who sign for servers, without those that are trusted only under a condition, which a file
// cannot say.
func roots() []byte {
	var list bytes.Buffer

	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&list, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}

	return list.Bytes()
}
