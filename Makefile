# What a contributor runs. Only Go, make and git are needed: `make test` brings up the databases itself
# (test/servers says how), and `make lint` builds its own tools into .bin/.

GOLANGCI_LINT_VERSION := v2.12.2
GOVULNCHECK_VERSION   := v1.1.4
GORELEASER_VERSION    := v2.15.1

# Every module of the repository; go.work joins them. test/, bench/ and cmd/ are modules of their own, so
# that what they need does not reach those who import the library.
MODULES := $(dir $(wildcard ./go.mod ./cmd/sqllock/go.mod ./test/go.mod ./bench/go.mod))

# The adapters are modules, too, which go.work leaves out: what they need would raise the versions that all others are
# tested with. Their tests run without the race detector, with which the libraries that they are for take minutes to compile;
# whoever changes one uses it: cd adapters/NAME && GOWORK=off go test -race ./...
ADAPTERS := $(dir $(wildcard ./adapters/*/go.mod))

# A module of its own, too: it has other libraries' locks, and what they need.
TORTURE := ./bench/torture/

# The packages of all modules, for one go command.
EVERYWHERE := $(addsuffix ...,$(MODULES))

# The race detector needs a C compiler: RACE= on the command line leaves it out. The suite runs with it in memory, and without
# it on databases: thrice as slow, all its modes kept a machine with two processors so busy that cases with many waiters ran into
# their limits. The tests of the command start a few thousand processes, each of which it makes slow: it is for those that
# need no server. On databases the runs under faults have it.
RACE := $(shell test "$$(go env CGO_ENABLED)" = 1 && command -v $$(go env CC) >/dev/null 2>&1 && echo -race)
# With SQLite's own code left out, which is translated from C: it has no goroutines, and takes twice as long to compile with the race
# detector. The driver around it has it.
RACESQLITE := $(if $(RACE),$(RACE) -gcflags=modernc.org/sqlite/lib=-race=false)
SUITE := '^Test(SQLite|Postgres|MySQL|MariaDB|QuorumSQLite)$$'

# For `go test`, as in: make test TESTFLAGS='-run TestGuard -count=10'
TESTFLAGS ?=
# A package's, on a machine that is thrice as slow as most.
TIMEOUT   ?= 40m

# Tests at a time. Most of them wait for a lease or a server and not for a processor, those of test/conformance above all. Those of
# the command keep it busy: more of them at a time are no faster, and run into their limits.
PARALLEL ?= 12
SUITES   ?= 20
BUSY     ?= 4

# Of `make bench`, which measures the library beside others, as in: make bench COMPAREFLAGS='-scenarios pair'
COMPAREFLAGS ?=

# For `go test -bench` instead, as in: make bench BENCH=Acquire BENCHFLAGS='-benchtime=5s -count=6'
BENCH      ?=
BENCHFLAGS ?=

# Of `make stress`, which runs the locks under faults. The slice in `make test` is short.
DURATION    ?= 30m
SLICE       ?= 30s
STRESSFLAGS ?=

# How often `make failover` ends the primary of each database.
FAILOVERS ?= 70

# How long each fuzz target runs, as in: make fuzz FUZZTIME=10m
FUZZTIME ?= 1m

BIN         := $(CURDIR)/.bin
LINT        := $(BIN)/golangci-lint-$(GOLANGCI_LINT_VERSION)-$(shell go env GOVERSION)
GORELEASER  := $(BIN)/goreleaser-$(GORELEASER_VERSION)-$(shell go env GOVERSION)
WITHSERVERS := $(BIN)/withservers

# Of this folder: a cache that two clones share reports with the paths of the other one.
export GOLANGCI_LINT_CACHE := $(BIN)/golangci-lint-cache

# $(call each,MODULES,COMMAND) runs the command in every module and fails if it failed in any.
define each
@status=0; for module in $(1); do \
	echo "== $$module: $(strip $(2))"; \
	(case $$module in ./adapters/*|$(TORTURE)) export GOWORK=off;; esac; cd $$module && $(2)) || status=1; \
done; exit $$status
endef

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: all
all: lint test ## Lint and test

# For those who edit: no server, no race detector, and the tests of most packages at once, since they wait more than they
# work. Everything on SQLite and in memory is in it, and so is the model.
.PHONY: quick
quick: ## Vet, build and test what needs no server, in about a minute
	go build $(EVERYWHERE)
	go vet $(EVERYWHERE)
	SQLLOCK_TEST_DATABASES=sqlite go test -p 4 -parallel 16 $(TESTFLAGS) \
		./... ./cmd/sqllock/... ./test/conformance ./test/fuzz ./test/model/... ./test/stress

.PHONY: test
test: graph bare gotest slice ## Test every module against real databases

# Not through Docker's proxy of published ports, which takes as much of a processor as a small server. The variable is
# for withservers; what the tests start themselves is reached as ever. One after the other, as the tests of the command and of test/
# change settings of the servers; with -k a target that fails keeps none from being run. Those that mostly wait come first, when in CI
# what needs no server runs beside them.
.PHONY: gotest
gotest: $(WITHSERVERS) ## What of it go test runs on servers
	@SQLLOCK_TEST_NEAR=1 $(WITHSERVERS) -- $(MAKE) -k --no-print-directory SQLLOCK_TEST_NEAR= \
		test-failover test-command test-rest test-suite test-bench test-adapters

.PHONY: bare
bare: ## What of it needs no server
	@$(if $(RACE),,echo "no C compiler: the tests run without the race detector")
	@$(MAKE) -k --no-print-directory test-root test-scripts test-models test-torture

# What the tests compile when nothing else waits for it.
.PHONY: compile
compile:
	cd test && go build $(RACESQLITE) -o $(BIN)/stress-slice ./cmd/stress
	$(call each,$(ADAPTERS),go test -vet=off -run '^$$' ./... >/dev/null)

# One known-bad variant for each check shows that it finds something; `make stress` has them all. They are without the race detector,
# which makes processes so slow that what is wrong with some of them, a race of milliseconds, hardly happens. Beside the frozen
# revision (test/frozen) it is one round, without crashes, after which a server may be gone for a minute. In a shallow clone,
# which has no such revision, that fails.
.PHONY: slice
slice: ## What of it stress runs
	@cd test && go build -o $(BIN)/stress ./cmd/stress && go build $(RACESQLITE) -o $(BIN)/stress-slice ./cmd/stress
	$(BIN)/stress -locks=false -variants=checks $(STRESSFLAGS)
	$(BIN)/stress-slice -variants=none -duration $(SLICE) -round 8s $(STRESSFLAGS)
	$(BIN)/stress -variants=none -locks=false -beside frozen -pair cas -rounds 1 -round 8s \
		-faults 'kill,pause,clock,force,session,freeze,latency,reset,half-open,stall,lost reply' $(STRESSFLAGS)

# With the DSNs in the environment, as withservers sets them. The linters vet them.
TESTS := -vet=off -timeout $(TIMEOUT) -parallel $(PARALLEL) $(TESTFLAGS)

.PHONY: test-suite
test-suite:
	cd test && go test -run $(SUITE) $(TESTS) -parallel $(SUITES) ./conformance

.PHONY: test-root
test-root:
	go test $(RACESQLITE) $(TESTS) ./...

# Each is one goroutine, and looks at no clock.
.PHONY: test-models
test-models:
	cd test && nice -n 19 go test $(TESTS) ./model/...

.PHONY: test-torture
test-torture:
	cd $(TORTURE) && GOWORK=off go test $(TESTS) ./internal/judge ./internal/page

.PHONY: test-scripts
test-scripts:
	$(if $(RACE),cd cmd/sqllock && SQLLOCK_TEST_DATABASES=sqlite go test $(RACESQLITE) -run '^TestScripts$$' $(TESTS) -parallel $(BUSY) .)

.PHONY: test-command
test-command:
	cd cmd/sqllock && go test $(TESTS) -parallel $(BUSY) ./...

.PHONY: test-rest
test-rest:
	cd test && go test -skip $(SUITE) $(TESTS) -parallel $(SUITES) $$(go list ./... | grep -vE '/test/(model|failover)')

.PHONY: test-bench
test-bench:
	cd bench && go test $(TESTS) ./...

# Beside nothing that keeps the servers busy: the leases are short, and they begin anew.
.PHONY: test-failover
test-failover:
	cd test && go test $(TESTS) -parallel $(BUSY) ./failover

.PHONY: test-adapters
test-adapters:
	@printf '%s\n' $(ADAPTERS) | xargs -P 2 -I{} sh -c 'cd "$$0" && GOWORK=off go test "$$@" ./...' {} $(TESTS)

.PHONY: stress
stress: ## Check the promises while faults strike, on servers of its own
	@cd test && go build -o $(BIN)/stress ./cmd/stress
	$(BIN)/stress -duration $(DURATION) -beside frozen $(STRESSFLAGS)

# A slice of it is in `make test`.
.PHONY: failover
failover: ## Fail over to standbys that lag, FAILOVERS times on each database, crash PostgreSQL as often, and count second holders
	cd test && SQLLOCK_TEST_FAILOVERS=$(FAILOVERS) go test -count=1 -v -timeout 2h $(TESTFLAGS) -run '^Test(Lost|Crashed)Grants$$' ./failover

# On clusters that somebody brought up: test/reach says how they are named. What is not named is said to be not run.
.PHONY: reach
reach: ## Test clusters that you brought up, named in SQLLOCK_REACH_...
	cd test && go test -count=1 -v -timeout $(TIMEOUT) ./reach
	cd test && SQLLOCK_TEST_TIDB="$(SQLLOCK_REACH_TIDB)" go test -count=1 -v -timeout $(TIMEOUT) -parallel 4 -run '^TestTiDB' ./conformance

# One by one: go test fuzzes one target of one package at a time. What it finds is a new file in testdata/fuzz
# beside the target, and a test from then on.
.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME
	@status=0; for folder in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u); do \
		for target in $$(cd $$folder && go test -list '^Fuzz' . | grep '^Fuzz'); do \
			echo "== $$folder: $$target"; \
			(cd $$folder && go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) .) || status=1; \
		done; \
	done; exit $$status

.PHONY: servers
servers: $(WITHSERVERS) ## Keep the test databases up until Ctrl-C, and show their DSNs
	@$(WITHSERVERS) -- sh -c 'env | grep "^SQLLOCK_TEST_" | sort; exec tail -f /dev/null'

.PHONY: bench
bench: $(WITHSERVERS) ## Measure beside others, into .bin/bench/tables.md and docs/performance.md; or BENCH
ifeq ($(BENCH),)
	@cd bench && go build -o $(BIN)/compare ./cmd/compare
	@SQLLOCK_TEST_NEAR=1 SQLLOCK_TEST_DURABLE=1 $(WITHSERVERS) -- $(BIN)/compare -tables $(BIN)/bench/tables.md -page docs/performance.md -programs $(BIN)/programs $(COMPAREFLAGS)
else
	@SQLLOCK_TEST_NEAR=1 SQLLOCK_TEST_DURABLE=1 $(WITHSERVERS) -- sh -c "cd bench && go test -run '^$$' -bench '$(BENCH)' $(BENCHFLAGS) ."
endif

# Of `make torture`: -locks and -faults choose, -compare says what differs from the record of an earlier run.
TORTUREFLAGS ?=

# Built anew from the standard library up, with a time.Now that can be off: a few minutes, the first time.
.PHONY: torture
torture: ## Put many libraries' locks through the same faults; into bench/torture/README.md
	@cd $(TORTURE) && export GOWORK=off && go run ./cmd/clocks $(BIN)/torture/overlay && \
		go build -overlay $(BIN)/torture/overlay/overlay.json -o $(BIN)/torture/torture .
	SQLLOCK_TEST_DURABLE=1 $(BIN)/torture/torture -record $(BIN)/torture/record.json -page $(TORTURE) $(TORTUREFLAGS)

# On servers, of which make test has no need: it tests what needs none.
.PHONY: torture-test
torture-test: ## Test the locks and servers of make torture
	cd $(TORTURE) && GOWORK=off go test $(TESTS) ./...

.PHONY: plots
plots: ## Write the plots and figures of docs/performance.md anew, from .bin/bench/tables.md
	cd bench && go run ./cmd/compare -redraw -tables $(BIN)/bench/tables.md -page ../docs/performance.md

.PHONY: demo
demo: ## See the locks at work, on SQLite or DATABASE_URL
	@cd cmd/sqllock && go build -o $(BIN)/sqllock .
	SQLLOCK=$(BIN)/sqllock go run ./examples/demo

.PHONY: examples
examples: ## Compile examples/; `go run ./examples/NAME` runs one
	go build -o /dev/null ./examples/...

.PHONY: graph
graph: ## Show the modules that an importer takes on; fail if too many
	@cd test && go run ./cmd/importergraph ..

# All modules in one run, in a workspace that has the adapters, too: what several of them import is analysed once. Without
# staticcheck for those whose dependencies take it longer than all else together. One linter looks at a single go.mod.
LARGE     := ./adapters/kubernetes/ $(TORTURE)
LINTSPACE := $(BIN)/lint/go.work

.PHONY: lint
lint: $(LINT) work-sum supply ## Run the linters, and check the formatting and the licences of dependencies
	@rm -rf $(dir $(LINTSPACE)) && mkdir -p $(dir $(LINTSPACE))
	@GOWORK=$(LINTSPACE) go work init $(abspath $(MODULES) $(ADAPTERS) $(TORTURE))
	GOWORK=$(LINTSPACE) $(LINT) run $(addsuffix ...,$(filter-out $(LARGE),$(MODULES) $(ADAPTERS)))
	GOWORK=$(LINTSPACE) $(LINT) run --disable staticcheck $(addsuffix ...,$(LARGE))
	$(call each,$(MODULES) $(ADAPTERS),$(LINT) run --enable-only gomoddirectives ./...)
	$(LINT) fmt --diff

# Fails if a dependency has a licence that is not allowed, or CONTRIBUTING.md does not say why it is there.
.PHONY: supply
supply:
	@cd test && go test -count=1 ./supply

.PHONY: fmt
fmt: $(LINT) ## Format the code
	$(LINT) fmt

.PHONY: tidy
tidy: ## Tidy every go.mod, and write go.work.sum
	$(call each,$(MODULES) $(ADAPTERS) $(TORTURE),GOWORK=off go mod tidy)
	: >go.work.sum && go list -m all >/dev/null

# go writes what is missing into go.work.sum when it looks at all modules, as "go doc" does, and leaves most of what is
# of no use any more. So the file is right if it is what go writes into an empty one.
.PHONY: work-sum
work-sum: ## Fail if go.work.sum is not what go writes
	@rm -rf $(BIN)/work && mkdir -p $(BIN)/work && cd $(BIN)/work && GOWORK=$(BIN)/work/go.work && export GOWORK && \
		go work init $(abspath $(MODULES)) && go list -m all >/dev/null && \
		{ diff $(CURDIR)/go.work.sum go.work.sum || { echo "go.work.sum is stale: make tidy writes it"; exit 1; }; }

.PHONY: tidy-check
tidy-check: ## Fail if a go.mod is not tidy
	$(call each,$(MODULES) $(ADAPTERS) $(TORTURE),GOWORK=off go mod tidy -diff)

.PHONY: vuln
vuln: ## Look for known vulnerabilities; needs https://vuln.go.dev
	$(call each,$(MODULES) $(ADAPTERS),GOWORK=off go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...)

# In a clone, which stays in .bin/release. It says what would publish it.
.PHONY: release
release: $(GORELEASER) ## Make the release VERSION=vX.Y.Z: tags, archives, images, SBOMs; publish nothing
	@cd test && go build -o $(BIN)/releaser ./cmd/release
	@$(BIN)/releaser -goreleaser $(GORELEASER) $(VERSION)

# Of the last commit. SQLLOCK_TEST_ALL=1 makes the archives of all systems, and not those of Linux alone.
.PHONY: release-test
release-test: $(GORELEASER) ## Make a release twice, compare, and use it as those who download it
	cd test && SQLLOCK_TEST_GORELEASER=$(GORELEASER) go test -count=1 -timeout $(TIMEOUT) $(TESTFLAGS) ./cmd/release

.PHONY: clean
clean: ## Remove the tools
	rm -rf $(BIN)

# Built, not `go run`: that does not pass on SIGTERM, nor the exit code.
.PHONY: $(WITHSERVERS)
$(WITHSERVERS):
	@cd test && go build -o $@ ./cmd/withservers

# $(call install,PACKAGE@VERSION) builds a tool. Its modules are not those of the workspace, and the name tells which Go built it:
# a linter cannot lint code of a newer one.
define install
@mkdir -p $@.d
GOWORK=off GOFLAGS= GOBIN=$@.d go install $(1)
@mv $@.d/* $@ && rmdir $@.d
endef

$(LINT):
	$(call install,github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION))

$(GORELEASER):
	$(call install,github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION))
