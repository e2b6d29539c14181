package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestImage compares an image with what deploy/Dockerfile says, by which people make theirs.
func TestImage(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	binary := filepath.Join(folder, "sqllock")

	if err := os.WriteFile(binary, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}

	var made [2][]byte

	for i := range made {
		file := filepath.Join(folder, fmt.Sprint(i))

		err := write(file, binary, "arm64", "sqllock:1.0.0", time.Unix(1e9, 0).UTC())
		if err != nil {
			t.Fatal(err)
		}

		if made[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}

	if !bytes.Equal(made[0], made[1]) {
		t.Error("the same image differs when it is made again")
	}

	unzipped, err := gzip.NewReader(bytes.NewReader(made[0]))
	if err != nil {
		t.Fatal(err)
	}

	files := contents(t, unzipped)
	layer := contents(t, bytes.NewReader(files["layer.tar"]))

	if got := string(layer[installed]); got != "a program" {
		t.Errorf("the program is %q", got)
	}

	if got := bytes.Count(layer[certificates], []byte("BEGIN CERTIFICATE")); got < 50 {
		t.Errorf("there are %d certificates", got)
	}

	var got image
	if err := json.Unmarshal(files["config.json"], &got); err != nil {
		t.Fatal(err)
	}

	dockerfile, err := os.ReadFile("../../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}

	for _, line := range []string{
		"USER " + got.Config.User,
		"ENV " + strings.Join(got.Config.Env, " "),
		fmt.Sprintf("ENTRYPOINT [%q]", got.Config.Entrypoint[0]),
	} {
		if !strings.Contains(string(dockerfile), "\n"+line+"\n") {
			t.Errorf("the Dockerfile has no line %q", line)
		}
	}
}

func contents(t *testing.T, archive io.Reader) map[string][]byte {
	t.Helper()

	found := map[string][]byte{}

	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return found
		}

		content, unread := io.ReadAll(files)
		if err := errors.Join(err, unread); err != nil {
			t.Fatal(err)
		}

		found[header.Name] = content
	}
}
