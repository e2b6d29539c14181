package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const tried = "v1.0.0"

// TestRelease makes a release of the last commit, and uses it as those who download it, of whom none has the repository. It
// takes minutes, and a program that takes minutes to build: make release-test.
func TestRelease(t *testing.T) {
	t.Parallel()

	program := os.Getenv("SQLLOCK_TEST_GORELEASER")
	if program == "" {
		t.Skip("SQLLOCK_TEST_GORELEASER names no goreleaser: make release-test does")
	}

	r := produced(t, program)
	dist := filepath.Join(r.folder, "dist")
	user := newUser(t, r)

	// Nobody but the repository itself has the modules beside each other.
	t.Run("modules", func(t *testing.T) {
		t.Parallel()

		for _, name := range r.modules(t)[1:] {
			file, err := os.ReadFile(filepath.Join(user.proxy, filepath.FromSlash(name), "@v", tried+".mod"))
			if err != nil {
				t.Fatal(err)
			}

			if bytes.Contains(file, []byte("replace")) || !bytes.Contains(file, []byte("\t"+library+" "+tried+"\n")) {
				t.Errorf("%s does not require the library alone:\n%s", name, file)
			}
		}
	})

	t.Run("install", func(t *testing.T) {
		t.Parallel()

		folder := t.TempDir()
		user.run(t, folder, "install", library+"/cmd/sqllock@"+tried)
		says(t, filepath.Join(folder, "sqllock"), "version")
	})

	t.Run("library", func(t *testing.T) {
		t.Parallel()

		readme, err := os.ReadFile(filepath.Join(r.repo, "README.md"))
		if err != nil {
			t.Fatal(err)
		}

		_, after, _ := strings.Cut(string(readme), "```go\n")
		program, _, _ := strings.Cut(after, "```\n")
		user.build(t, library, program)
	})

	t.Run("adapter", func(t *testing.T) {
		t.Parallel()

		path := library + "/adapters/prometheus"
		user.build(t, path, "package main\n\nimport _ \""+path+"\"\n\nfunc main() {}\n")
	})

	t.Run("archive", func(t *testing.T) {
		t.Parallel()

		wanted := []string{"sqllock", "sqllock-prove", "README.md", "LICENSE", "CHANGELOG.md", "man/man1/sqllock.1", "completions/_sqllock"}

		for _, header := range headers(t, filepath.Join(dist, "sqllock_1.0.0_linux_"+runtime.GOARCH+".tar.gz")) {
			_, name, _ := strings.Cut(header.Name, "/")
			wanted = slices.DeleteFunc(wanted, func(w string) bool { return w == name })

			// Else it is who makes the archive, and how their files are.
			if header.Uname != "root" || header.Gname != "root" || header.Mode&^0o111 != 0o644 {
				t.Errorf("%s is of %s:%s, mode %o", header.Name, header.Uname, header.Gname, header.Mode)
			}
		}

		if len(wanted) > 0 {
			t.Errorf("there is no %s in it", wanted)
		}
	})

	t.Run("sbom", func(t *testing.T) {
		t.Parallel()

		type component struct{ Name, Version string }

		var sbom struct {
			BOMFormat  string
			Metadata   struct{ Component component }
			Components []component
		}

		document, err := os.ReadFile(filepath.Join(dist, "sqllock_1.0.0_linux_"+runtime.GOARCH+".cdx.json"))
		if err := errors.Join(err, json.Unmarshal(document, &sbom)); err != nil {
			t.Fatal(err)
		}

		if sbom.BOMFormat != "CycloneDX" || sbom.Metadata.Component != (component{library + "/cmd/sqllock", tried}) ||
			!slices.Contains(sbom.Components, component{library, tried}) {
			t.Errorf("the SBOM is not of the command: %+v", sbom)
		}
	})

	t.Run("image", func(t *testing.T) {
		t.Parallel()

		const name = "sqllock:1.0.0"

		if out, err := exec.CommandContext(t.Context(), "docker", "image", "ls", "--quiet", name).CombinedOutput(); err != nil || len(out) > 0 {
			t.Skipf("no Docker, or an image %s that is somebody's: %v, %s", name, err, out)
		}

		archive := filepath.Join(dist, "sqllock_1.0.0_linux_"+runtime.GOARCH+"_image.tar.gz")
		if out, err := exec.CommandContext(t.Context(), "docker", "load", "--input", archive).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}

		says(t, "docker", "run", "--rm", "--network=none", "--read-only", name, "version")

		if out, err := exec.CommandContext(t.Context(), "docker", "image", "rm", name).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})

	// Another clone elsewhere, in which nothing is compiled yet.
	t.Run("again", func(t *testing.T) {
		t.Parallel()

		want, got := sums(t, r), sums(t, produced(t, program, "GOCACHE="+t.TempDir()))
		if want != got {
			t.Errorf("two releases of one commit differ:\n%s\n%s", want, got)
		}
	})
}

// produced makes a release of a clone. Without SQLLOCK_TEST_ALL it is one for Linux on processors as this machine's.
func produced(t *testing.T, goreleaser string, env ...string) *release {
	t.Helper()

	source := filepath.Join(t.TempDir(), "source")
	if out, err := exec.CommandContext(t.Context(), "git", "clone", "--quiet", "../../..", source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	config, err := os.ReadFile(filepath.Join(source, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	if os.Getenv("SQLLOCK_TEST_ALL") == "" {
		config = bytes.ReplaceAll(config, []byte("goos: [linux, darwin, windows]"), []byte("goos: [linux]"))
		config = bytes.ReplaceAll(config, []byte("goarch: [amd64, arm64]"), []byte("goarch: ["+runtime.GOARCH+"]"))
	}

	file := filepath.Join(t.TempDir(), "goreleaser.yaml")
	if err := os.WriteFile(file, config, 0o644); err != nil {
		t.Fatal(err)
	}

	r := release{version: tried, source: source, goreleaser: goreleaser, config: file, env: env}
	if err := r.produce(t.Context()); err != nil {
		t.Fatal(err)
	}

	return &r
}

// modules are the paths of all modules, from the tags, the library's first.
func (r *release) modules(t *testing.T) []string {
	t.Helper()

	tags, err := r.output(t.Context(), r.repo, "git", "tag")
	if err != nil {
		t.Fatal(err)
	}

	paths := []string{library}

	for tag := range strings.FieldsSeq(tags) {
		if folder, is := strings.CutSuffix(tag, "/"+tried); is {
			paths = append(paths, library+"/"+folder)
		}
	}

	if files, _ := filepath.Glob(filepath.Join(r.repo, "adapters", "*", "go.mod")); len(paths) != 2+len(files) {
		t.Fatalf("the tags are %s", tags)
	}

	return paths
}

// user is somebody who has only what a proxy gives, and no modules yet.
type user struct {
	proxy string // a folder
	env   []string
}

// newUser makes the files of a proxy. Go itself makes them, of the tags: what it has fetched is laid out as on a proxy.
func newUser(t *testing.T, r *release) user {
	t.Helper()

	fetched := t.TempDir()
	fetch := release{env: append(slices.Clone(r.env), "GOMODCACHE="+fetched)}

	args := []string{"mod", "download"}
	for _, path := range r.modules(t) {
		args = append(args, path+"@"+tried)
	}

	if err := fetch.run(t.Context(), t.TempDir(), "go", args...); err != nil {
		t.Fatal(err)
	}

	settings, err := fetch.output(t.Context(), t.TempDir(), "go", "env", "GOPROXY")
	if err != nil {
		t.Fatal(err)
	}

	tree := filepath.Join(fetched, "cache", "download")

	return user{proxy: tree, env: append(os.Environ(),
		"GOWORK=off", "GOMODCACHE="+t.TempDir(), "GOPROXY=file://"+tree+","+settings, "GONOSUMDB="+library,
		// With a pattern in one of these, go get does not ask a proxy for an adapter if it has the library already.
		"GOPRIVATE=", "GONOPROXY=",
		// As the release is built, so that little has to be compiled again.
		"GOFLAGS=-mod=mod -modcacherw -trimpath", "CGO_ENABLED=0",
	)}
}

// build lets a new module require the other one, and builds the program.
func (u user) build(t *testing.T, path, program string) {
	t.Helper()

	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}

	u.run(t, folder, "mod", "init", "example.com/job")
	u.run(t, folder, "get", path+"@"+tried)
	u.run(t, folder, "build", "-o", os.DevNull, ".")
}

// run runs Go in the folder, into which it installs programs.
func (u user) run(t *testing.T, folder string, args ...string) {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(slices.Clone(u.env), "GOBIN="+folder)
	cmd.Dir = folder

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// says looks for the version in what a program prints.
func says(t *testing.T, program string, args ...string) {
	t.Helper()

	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil || !bytes.HasPrefix(out, []byte("sqllock "+tried+" go")) {
		t.Errorf("%s %s: %v, %s", program, args, err, out)
	}
}

func sums(t *testing.T, r *release) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(r.folder, "dist", "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

// headers are those of the files in an archive.
func headers(t *testing.T, archive string) (found []*tar.Header) {
	t.Helper()

	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}

	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return found
		}

		if err != nil {
			t.Fatal(err)
		}

		found = append(found, header)
	}
}
