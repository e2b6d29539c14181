// Command release makes a release in a clone of the repository, where anybody can look at it, and publishes nothing.
//
//	release [-goreleaser FILE] vX.Y.Z
//
// It runs in the root of a repository without changes, and writes into .bin/release:
//
//	repo       the clone, with a tag for each module
//	dist       archives, images and SBOMs, and SHA256SUMS of them
//	notes.md   the section of CHANGELOG.md
//
// The library is tagged as it stands. The command and the adapters build with the library beside them, by a replace: go install
// refuses a command that has one, and who imports an adapter does not get it. So a commit that is on no branch lets all of them
// require the version that was tagged, and has their tags. Whoever repeats a release from the tag of the library makes the
// same commit, and with it the same archives.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

const library = "github.com/sqllock/sqllock"

// The path of a module has no version, so there is no v2.
var versions = regexp.MustCompile(`^v[01]\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func main() {
	r := release{source: ".", config: ".goreleaser.yaml"}

	flag.StringVar(&r.goreleaser, "goreleaser", "goreleaser", "the program goreleaser, a `file`")
	flag.Parse()

	r.version = flag.Arg(0)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := r.produce(ctx)

	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is what is asked for.
type release struct {
	version    string // of each module
	source     string // the repository
	goreleaser string
	config     string   // of goreleaser
	env        []string // of each program that is run, beside what this one has

	folder, repo string // .bin/release, and the clone in it
}

func (r *release) produce(ctx context.Context) (err error) {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("the version %q is not of the form v1.2.3", r.version)
	}

	// A folder of its own for the modules: Go takes for granted that a version never changes, which that of a release
	// that is tried does.
	modules, err := os.MkdirTemp("", "sqllock-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(modules)) }()

	if err := r.clone(ctx); err != nil {
		return err
	}

	text, dated, err := r.notes()
	if err != nil {
		return err
	}

	if err := os.WriteFile(filepath.Join(r.folder, "notes.md"), []byte(text), 0o644); err != nil {
		return err
	}

	if err := r.setEnvironment(ctx, modules); err != nil {
		return err
	}

	tags, err := r.tag(ctx)
	if err != nil {
		return err
	}

	if err := r.build(ctx); err != nil {
		return err
	}

	fmt.Printf("\n%s is in %s, and nothing is published.\n", r.version, r.folder)

	if !dated {
		fmt.Printf("CHANGELOG.md has no section [%s] yet: notes.md is what is under Unreleased.\n", r.number())

		return nil
	}

	// All tags at once, so that nobody ever sees a command without its library.
	fmt.Printf("To publish what you have looked at:\n\n    git -C %s push --atomic origin %s\n", r.repo, strings.Join(tags, " "))
	fmt.Printf("    cd %s && gh release create %s --draft --verify-tag --notes-file notes.md dist/SHA256SUMS dist/sqllock_%s_*\n",
		r.folder, r.version, r.number())

	return nil
}

// number is the version as the changelog and the names of archives have it.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// clone makes the clone, without tags: those of this release are its own, also if they are known already.
func (r *release) clone(ctx context.Context) error {
	changes, err := r.output(ctx, r.source, "git", "status", "--porcelain")
	if err != nil {
		return err
	}

	if changes != "" {
		return errors.New("there are changes that are not committed: a release would lack them")
	}

	if r.source, err = filepath.Abs(r.source); err != nil {
		return err
	}

	r.folder = filepath.Join(r.source, ".bin", "release")
	r.repo = filepath.Join(r.folder, "repo")

	if err := os.RemoveAll(r.folder); err != nil {
		return err
	}

	if err := r.run(ctx, "", "git", "clone", "--quiet", "--no-tags", r.source, r.repo); err != nil {
		return err
	}

	origin, err := r.output(ctx, r.source, "git", "remote", "get-url", "origin")
	if err != nil {
		return err
	}

	return r.run(ctx, r.repo, "git", "remote", "set-url", "origin", origin)
}

// setEnvironment lets Go and git take the modules of this repository from the clone, and all others from where they come
// otherwise. Commits and tags have the name and the time of the last commit: they are the same whoever makes them.
func (r *release) setEnvironment(ctx context.Context, modules string) error {
	last, err := r.output(ctx, r.repo, "git", "log", "-1", "--format=%cn%n%ce%n%cI")
	if err != nil {
		return err
	}

	goenv, err := r.output(ctx, r.repo, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return err
	}

	commit, settings := strings.Split(last, "\n"), strings.Split(goenv, "\n")

	r.env = append(slices.Clone(r.env),
		"GIT_AUTHOR_NAME="+commit[0], "GIT_AUTHOR_EMAIL="+commit[1], "GIT_AUTHOR_DATE="+commit[2],
		"GIT_COMMITTER_NAME="+commit[0], "GIT_COMMITTER_EMAIL="+commit[1], "GIT_COMMITTER_DATE="+commit[2],
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url."+r.repo+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+library,
		"GOWORK=off", "GOFLAGS=-modcacherw -trimpath", "GOMODCACHE="+modules,
		"GONOPROXY="+library, "GONOSUMDB="+library,
		// What was fetched before need not be fetched again.
		"GOPROXY=file://"+filepath.ToSlash(settings[0])+"/cache/download,"+settings[1],
	)

	return nil
}

// tag tags each module, and returns the tags, that of the library first.
func (r *release) tag(ctx context.Context) ([]string, error) {
	tags := []string{r.version}
	if err := r.run(ctx, r.repo, "git", "tag", "-m", "sqllock "+r.version, r.version); err != nil {
		return nil, err
	}

	files, err := filepath.Glob(filepath.Join(r.repo, "adapters", "*", "go.mod"))
	if err != nil {
		return nil, err
	}

	for _, file := range append([]string{filepath.Join(r.repo, "cmd", "sqllock", "go.mod")}, files...) {
		folder := filepath.Dir(file)

		name, err := filepath.Rel(r.repo, folder)
		if err != nil {
			return nil, err
		}

		if err := r.requireLibrary(ctx, folder); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		tags = append(tags, filepath.ToSlash(name)+"/"+r.version)
	}

	// Not signed: a signature would make it another commit each time.
	if err := r.run(ctx, r.repo, "git", "-c", "commit.gpgSign=false", "commit", "--quiet", "--all",
		"-m", "Require "+r.version+" of the library"); err != nil {
		return nil, err
	}

	for _, tag := range tags[1:] {
		if err := r.run(ctx, r.repo, "git", "tag", "-m", tag, tag); err != nil {
			return nil, err
		}
	}

	return tags, nil
}

// requireLibrary lets the module in the folder require the library that was tagged, and no other in its place.
func (r *release) requireLibrary(ctx context.Context, folder string) error {
	if err := r.run(ctx, folder, "go", "mod", "edit", "-dropreplace="+library, "-require="+library+"@"+r.version); err != nil {
		return err
	}

	return r.run(ctx, folder, "go", "mod", "tidy")
}

// build lets goreleaser make what people download. It finds no tag with a folder in it, so the version is given. And it makes
// one after the other: it puts binaries into an archive in the order in which they were ready.
func (r *release) build(ctx context.Context) error {
	cmd := r.command(ctx, r.repo, r.goreleaser, "release", "--clean", "--parallelism=1", "--skip=validate,publish", "--config", r.config)
	cmd.Env = append(cmd.Env, "GORELEASER_CURRENT_TAG="+r.version)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr // it takes minutes

	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", cmd, err)
	}

	return os.Rename(filepath.Join(r.repo, ".bin", "dist"), filepath.Join(r.folder, "dist"))
}

// run runs a program.
func (r *release) run(ctx context.Context, folder, program string, args ...string) error {
	_, err := r.output(ctx, folder, program, args...)

	return err
}

// output runs a program, and shows what it says beside its output if it fails.
func (r *release) output(ctx context.Context, folder, program string, args ...string) (string, error) {
	var said bytes.Buffer

	cmd := r.command(ctx, folder, program, args...)
	cmd.Stderr = &said

	output, err := cmd.Output()
	if err != nil {
		fmt.Fprint(os.Stderr, &said)

		return "", fmt.Errorf("%s: %w", cmd, err)
	}

	return strings.TrimSpace(string(output)), nil
}

func (r *release) command(ctx context.Context, folder, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), r.env...)

	return cmd
}
