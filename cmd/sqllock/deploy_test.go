//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// The folder whose files these tests check.
const deploy = "../../deploy"

// installed is where all of these files expect the command.
const installed = "/usr/local/bin/sqllock"

// works runs a command line of a file, with "true" in place of the command that it has after "--". A flag that is renamed
// or a value that is no longer taken ends it with 64.
func works(t *testing.T, url string, line []string) {
	t.Helper()

	end := slices.Index(line, "--")
	if line[0] != installed || end < 0 || end == len(line)-1 {
		t.Fatalf("%q is not %s ... -- COMMAND", line, installed)
	}

	run(t, url, append(slices.Clone(line[1:end+1]), "true")...).want(0)
}

// beside runs it while another holds the lock, and returns the exit code.
func beside(t *testing.T, url, name string, line []string) int {
	t.Helper()

	holder := start(t, url, "run", "--name", name, "--", "sh", "-c", "echo held; exec sleep 60")
	eventually(t, "held", func() bool { return strings.Contains(holder.stdout.String(), "held") })

	i := run(t, url, append(slices.Clone(line[1:slices.Index(line, "--")+1]), "false")...)

	if err := holder.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}

	holder.wait()

	return i.code()
}

// unit reads a systemd unit: the values of each "Section.Key".
func unit(t *testing.T, name string) map[string][]string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(deploy, "systemd", name))
	if err != nil {
		t.Fatal(err)
	}

	section, found := "", make(map[string][]string)

	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)

		switch key, value, ok := strings.Cut(line, "="); {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = strings.Trim(line, "[]")
		case !ok || section == "" || strings.HasSuffix(line, `\`):
			t.Fatalf("%s has a line that is no setting: %s", name, line)
		default:
			found[section+"."+key] = append(found[section+"."+key], value)
		}
	}

	return found
}

// one is the only value of a setting.
func one(t *testing.T, unit map[string][]string, key string) string {
	t.Helper()

	if len(unit[key]) != 1 {
		t.Fatalf("%s is set %d times, want once", key, len(unit[key]))
	}

	return unit[key][0]
}

// TestNightlyUnit runs the job of nightly.service on a machine that has the lock, and on one that has not.
func TestNightlyUnit(t *testing.T) {
	t.Parallel()

	service, timer := unit(t, "nightly.service"), unit(t, "nightly.timer")

	line := strings.Fields(one(t, service, "Service.ExecStart"))
	works(t, migrated(t), line)

	if code := beside(t, migrated(t), "nightly", line); code != 0 {
		t.Errorf("a machine without the lock fails with %d, want 0: it has nothing to do", code)
	}

	if !slices.Contains(line, "--require-dsn") || one(t, service, "Service.EnvironmentFile") == "" {
		t.Errorf("%q does not insist on the database of an EnvironmentFile", line)
	}

	if run(t, "", append(slices.Clone(line[1:slices.Index(line, "--")+1]), "true")...).code() != exitUsage {
		t.Error("without a database the job runs")
	}

	if one(t, timer, "Timer.OnCalendar") == "" || one(t, timer, "Install.WantedBy") != "timers.target" {
		t.Errorf("the timer %v does not start the job", timer)
	}
}

// TestLeaderUnit runs the server of leader.service with a credential in the place of systemd's.
func TestLeaderUnit(t *testing.T) {
	t.Parallel()

	service := unit(t, "leader.service")

	name, _, _ := strings.Cut(one(t, service, "Service.LoadCredential"), ":")
	folder := t.TempDir()

	if err := os.WriteFile(filepath.Join(folder, name), []byte(migrated(t)+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}

	line := strings.Fields(strings.ReplaceAll(one(t, service, "Service.ExecStart"), "${CREDENTIALS_DIRECTORY}", folder))
	works(t, "", line)

	if slices.Contains(line, "-n") || slices.Contains(line, "--no-wait") || one(t, service, "Service.Restart") != "always" {
		t.Errorf("%q does not wait until it is the leader, and begin again", line)
	}

	// The grace that flags give the server, and what systemd gives to all.
	stop, err := time.ParseDuration(one(t, service, "Service.TimeoutStopSec"))
	if err != nil {
		t.Fatal(err)
	}

	longer(t, stop, line)
}

// flagsOf are the flags of a command line.
func flagsOf(t *testing.T, line []string) *pflag.FlagSet {
	t.Helper()

	cmd := newRun()
	if err := cmd.ParseFlags(line[2:slices.Index(line, "--")]); err != nil {
		t.Fatal(err)
	}

	return cmd.Flags()
}

// longer checks that whoever ends sqllock gives it more time than it gives the command.
func longer(t *testing.T, stop time.Duration, line []string) {
	t.Helper()

	flags := flagsOf(t, line)

	text, err := flags.GetString("on-loss")
	if err != nil {
		t.Fatal(err)
	}

	loss, err := parseOnLoss(text, 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}

	if stop <= loss.grace {
		t.Errorf("%q has %s to end, which is not more than the %s of --on-loss", line, stop, loss.grace)
	}
}

// TestUnitsVerify lets systemd look at the units: for settings that it does not know, and values that they do not take.
func TestUnitsVerify(t *testing.T) {
	t.Parallel()

	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed (Debian's package systemd): only the command lines of the units are checked")
	}

	// It wants the program of ExecStart to be there.
	program, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}

	files, err := filepath.Glob(filepath.Join(deploy, "systemd", "*.*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("units %q, %v; want 3", files, err)
	}

	folder := t.TempDir()
	args := []string{"verify", "--man=no"}

	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		copied := filepath.Join(folder, filepath.Base(file))
		if err := os.WriteFile(copied, bytes.ReplaceAll(text, []byte("="+installed+" "), []byte("="+program+" ")), 0o644); err != nil {
			t.Fatal(err)
		}

		args = append(args, copied)
	}

	out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// The fields of Kubernetes objects that the files use. Others are an error, so what is misspelled there has to be
// misspelled here, too.
type (
	metadata struct {
		Name   string
		Labels map[string]string
	}

	cronJob struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       struct {
			Schedule                string
			TimeZone                string `yaml:"timeZone"`
			ConcurrencyPolicy       string `yaml:"concurrencyPolicy"`
			StartingDeadlineSeconds int    `yaml:"startingDeadlineSeconds"`
			JobTemplate             struct {
				Spec struct {
					BackoffLimit *int `yaml:"backoffLimit"`
					Template     podTemplate
				}
			} `yaml:"jobTemplate"`
		}
	}

	deployment struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   metadata
		Spec       struct {
			Replicas int
			Selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			Template podTemplate
		}
	}

	podTemplate struct {
		Metadata metadata
		Spec     struct {
			RestartPolicy                 string `yaml:"restartPolicy"`
			TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
			AutomountServiceAccountToken  *bool  `yaml:"automountServiceAccountToken"`
			SecurityContext               struct {
				RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
				RunAsUser      int                   `yaml:"runAsUser"`
				RunAsGroup     int                   `yaml:"runAsGroup"`
				SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
			} `yaml:"securityContext"`
			Containers []container
		}
	}

	container struct {
		Name, Image   string
		Command, Args []string
		Env           []struct {
			Name      string
			ValueFrom struct {
				SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
			} `yaml:"valueFrom"`
		}
		Resources       struct{ Requests, Limits map[string]string }
		SecurityContext struct {
			AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
			Capabilities             struct{ Drop []string }
		} `yaml:"securityContext"`
	}
)

// object reads a file of Kubernetes.
func object(t *testing.T, name string, into any) {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(deploy, "kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}

	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)

	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// line is the command line of the only container of a pod, of which it checks what all pods should have.
func (p podTemplate) line(t *testing.T) []string {
	t.Helper()

	if len(p.Spec.Containers) != 1 {
		t.Fatalf("the pod has %d containers, want 1", len(p.Spec.Containers))
	}

	c := p.Spec.Containers[0]

	switch {
	case !p.Spec.SecurityContext.RunAsNonRoot || p.Spec.SecurityContext.RunAsUser == 0,
		!c.SecurityContext.ReadOnlyRootFilesystem, !slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}),
		c.SecurityContext.AllowPrivilegeEscalation == nil || *c.SecurityContext.AllowPrivilegeEscalation:
		t.Errorf("the pod may do more than it needs: %+v, %+v", p.Spec.SecurityContext, c.SecurityContext)
	case len(c.Env) != 1 || c.Env[0].Name != "DATABASE_URL" || c.Env[0].ValueFrom.SecretKeyRef.Key == "":
		t.Errorf("DATABASE_URL is not from a Secret: %+v", c.Env)
	case c.Resources.Requests["memory"] == "" || c.Resources.Limits["memory"] == "":
		t.Errorf("resources %+v have no memory", c.Resources)
	case !slices.Contains(c.Args, "--require-dsn"):
		t.Errorf("%q does not insist on a database", c.Args)
	}

	line := slices.Concat(c.Command, c.Args)
	longer(t, time.Duration(p.Spec.TerminationGracePeriodSeconds)*time.Second, line)

	return line
}

// TestCronJob runs the job of cronjob.yaml in a cluster that has the lock, and in one that has not.
func TestCronJob(t *testing.T) {
	t.Parallel()

	var job cronJob

	object(t, "cronjob.yaml", &job)

	if job.APIVersion != "batch/v1" || job.Kind != "CronJob" {
		t.Errorf("it is a %s %s", job.APIVersion, job.Kind)
	}

	template := job.Spec.JobTemplate.Spec.Template
	line := template.line(t)
	works(t, migrated(t), line)

	if code := beside(t, migrated(t), "nightly", line); code != 0 {
		t.Errorf("a cluster without the lock fails with %d, want 0: it has nothing to do", code)
	}

	flags := flagsOf(t, line)

	// A cluster that starts the job late must find the name taken.
	late := time.Duration(job.Spec.StartingDeadlineSeconds) * time.Second
	if hold, err := time.ParseDuration(flags.Lookup("min-hold").Value.String()); err != nil || late == 0 || late >= hold {
		t.Errorf("startingDeadlineSeconds is %s, want less than --min-hold %s (%v)", late, hold, err)
	}
}

// TestDeployment runs the server of deployment.yaml.
func TestDeployment(t *testing.T) {
	t.Parallel()

	var d deployment

	object(t, "deployment.yaml", &d)

	if d.APIVersion != "apps/v1" || d.Kind != "Deployment" || d.Spec.Replicas < 2 {
		t.Errorf("it is a %s %s with %d replicas", d.APIVersion, d.Kind, d.Spec.Replicas)
	}

	if label := d.Spec.Selector.MatchLabels["app"]; label == "" || d.Spec.Template.Metadata.Labels["app"] != label {
		t.Errorf("the selector %v does not find the pods %v", d.Spec.Selector, d.Spec.Template.Metadata.Labels)
	}

	line := d.Spec.Template.line(t)
	works(t, migrated(t), line)

	if slices.Contains(line, "--no-wait") {
		t.Errorf("%q does not wait until it is the leader", line)
	}
}

// TestDockerfile runs the command line that the Dockerfile gives to those who copy the binary, and looks for what keeps
// the image small and harmless.
func TestDockerfile(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join(deploy, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{
		"CGO_ENABLED=0", "\nFROM scratch\n", "\nUSER 65532:65532\n", "ca-certificates.crt", "\nENV " + requireVariable + "=1\n",
		"\nENTRYPOINT [\"" + installed + "\"]\n", "COPY --from=sqllock " + installed + " " + installed,
	} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("deploy/Dockerfile has no %q", want)
		}
	}

	_, after, _ := strings.Cut(string(text), "#   ENTRYPOINT ")
	list, _, _ := strings.Cut(after, "\n")

	var line []string
	if err := json.Unmarshal([]byte(list), &line); err != nil {
		t.Fatalf("%s: %v", list, err)
	}

	works(t, migrated(t), line)
}

// TestCronLine runs the line for cron that the page shows, with the file that nightly.service shows.
func TestCronLine(t *testing.T) {
	t.Parallel()

	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}

	_, line, found := strings.Cut(string(page), "\n    15 2 * * *  ")
	if !found {
		t.Fatal("the page has no line for cron")
	}

	line, _, _ = strings.Cut(line, "\n")

	service, err := os.ReadFile(filepath.Join(deploy, "systemd", "nightly.service"))
	if err != nil {
		t.Fatal(err)
	}

	const setting = "DATABASE_URL='postgres://app:secret@db/app'"

	if !strings.Contains(string(service), "# "+setting+",") {
		t.Errorf("nightly.service shows another file than %s", setting)
	}

	file := filepath.Join(t.TempDir(), "env")
	url := withParameter(t, migrated(t), "_pragma", "foreign_keys(1)") // a shell has to find the quotes around it

	if err := os.WriteFile(file, []byte(strings.Replace(setting, "postgres://app:secret@db/app", url, 1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	line = strings.NewReplacer("/etc/app/env", file, installed, os.Args[0], "/opt/app/job", "printenv DATABASE_URL").Replace(line)

	i := prepare(t, "", "-c", line)
	i.cmd.Path = "/bin/sh"
	i.start()
	i.wait()
	i.want(0)

	if got := strings.TrimSpace(i.stdout.String()); got != url {
		t.Errorf("the job has the database %q, want %q", got, url)
	}

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}

	i = prepare(t, "", "-c", line)
	i.cmd.Path = "/bin/sh"
	i.start()

	if i.wait() == 0 {
		t.Error("the job runs without the file")
	}
}
