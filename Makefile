# Needs Go, git and GNU make. Every other tool is a Go module that tools/go.mod pins; nothing is installed.

GO       ?= go
TOOL     := $(GO) tool -modfile=tools/go.mod
TIMEOUT  ?= 25m
FUZZTIME ?= 60s

GENERATED := ':(glob)**/*.pb.go' ':(glob)**/*.fold.go' ':(glob)**/*.connect.go' ':!:cmd/protoc-gen-fold/internal/testdata'
SCRATCH   := .tmp/generated

# The tables of foldvalidate's tests import a proto file that only a Go module has, so they are generated from an image.
VALIDATE  := runtime/foldvalidate/internal/validatetest
IMAGE     := .tmp/validatetest.binpb

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: ## Show a fold survive kill -9, on a NATS server inside the process
	$(GO) run ./internal/demo

.PHONY: test
test: testtools ## Run every test; they start the servers that they need
	$(GO) test -timeout $(TIMEOUT) ./...

.PHONY: test-clouds
test-clouds: ## Run the object stores' tests against emulators of GCS and Azure (needs node and npm)
	@mkdir -p .tmp/clouds
	GOBIN=$(CURDIR)/.tmp/clouds CGO_ENABLED=0 $(GO) install github.com/fsouza/fake-gcs-server@v1.56.1
	npm install --prefix .tmp/clouds --no-audit --no-fund azurite@3.35.0
	FAKE_GCS_SERVER=$(CURDIR)/.tmp/clouds/fake-gcs-server AZURITE_BLOB=$(CURDIR)/.tmp/clouds/node_modules/.bin/azurite-blob \
		$(GO) test -tags clouds -timeout $(TIMEOUT) ./runtime/artifact/objects/gcs ./runtime/artifact/objects/azure

.PHONY: protoc
protoc: ## Generate a user's workspace with an installed protoc (32 or newer), compile it and run it
	@command -v "$${PROTOC:-protoc}" >/dev/null || { echo "protoc is not installed; PROTOC can say where it is" >&2; exit 1; }
	$(GO) test -tags protoc -count 1 -run '^TestProtoc$$' ./cmd/protoc-gen-fold

.PHONY: testtools
testtools: ## Compile the programs that tests run, so that no test waits for it
	$(GO) build -o .tmp/nats -modfile=tools/go.mod github.com/nats-io/natscli/nats
	CGO_ENABLED=0 $(GO) build -modfile=tools/go.mod -trimpath -ldflags='-s -w' -buildvcs=false -o .tmp/versitygw github.com/versity/versitygw/cmd/versitygw

.PHONY: build
build: ## Compile everything
	$(GO) build ./...

.PHONY: generate
generate: ## Generate code from the proto files, the plugin's golden outputs, and docs/options.md
	$(TOOL) buf generate
	$(TOOL) buf generate --template internal/wire/internal/wiretest/buf.gen.yaml
	@mkdir -p .tmp
	$(GO) run ./$(VALIDATE)/image $(IMAGE) $(VALIDATE)/proto validatetest/v1/validatetest.proto
	$(TOOL) buf generate --template $(VALIDATE)/buf.gen.yaml --path validatetest/v1/validatetest.proto $(IMAGE)
	$(GO) test ./cmd/protoc-gen-fold/internal/foldgen -run '^Test(Golden|Matrix)$$' -update
	$(GO) run ./internal/optiondoc proto docs/options.md

# Generates into a folder aside and compares with the files as they are now, committed or not. The golden outputs of
# the plugin and docs/options.md are compared by tests.
.PHONY: checkgenerate
checkgenerate: ## Check that generated code is what the proto files give
	@rm -rf $(SCRATCH) && mkdir -p $(SCRATCH)/want $(SCRATCH)/have
	$(TOOL) buf generate --output $(SCRATCH)/want
	$(TOOL) buf generate --template internal/wire/internal/wiretest/buf.gen.yaml --output $(SCRATCH)/want
	$(GO) run ./$(VALIDATE)/image $(IMAGE) $(VALIDATE)/proto validatetest/v1/validatetest.proto
	$(TOOL) buf generate --template $(VALIDATE)/buf.gen.yaml --path validatetest/v1/validatetest.proto --output $(SCRATCH)/want $(IMAGE)
	@git ls-files --cached --others --exclude-standard -- $(GENERATED) | while read -r f; do \
		if [ -f "$$f" ]; then mkdir -p "$(SCRATCH)/have/$$(dirname "$$f")" && cp "$$f" "$(SCRATCH)/have/$$f" || exit 1; fi; done
	@git diff --no-index --exit-code $(SCRATCH)/have $(SCRATCH)/want \
		|| { echo "generated code differs from its proto files; run make generate" >&2; exit 1; }
	@rm -rf $(SCRATCH)

.PHONY: vet
vet: ## Run go vet
	$(GO) vet ./...

.PHONY: lint
lint: ## Check formatting, proto style, and run staticcheck
	@unformatted=$$(git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 ls -d 2>/dev/null | xargs $$($(GO) env GOROOT)/bin/gofmt -l) \
		&& if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:" >&2; echo "$$unformatted" >&2; exit 1; fi
	$(TOOL) buf lint
	$(TOOL) staticcheck ./...

.PHONY: race
race: testtools ## Run every test under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 40m ./...

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (60s)
	@git ls-files --cached --others --exclude-standard -- '*_test.go' | xargs grep -l '^func Fuzz' | sort | while read -r f; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$f"); do \
			echo "./$$(dirname "$$f") $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$f")" </dev/null || exit 1; \
		done; done

.PHONY: models
models: ## Visit every state of the models and judge their properties
	$(GO) run ./internal/modelcheck/cmd/models

.PHONY: models-deep
models-deep: ## The same with the models that take long
	$(GO) run ./internal/modelcheck/cmd/models -deep

.PHONY: mutants
mutants: ## Check that the models catch each of their mutations
	$(GO) run ./internal/modelcheck/cmd/models -mutants

# The test binary runs by itself, so that its sum is the last line.
.PHONY: dst
dst: dst-binary ## Play the fault schedules of a test run, with their counts
	cd internal/dst && ../../.tmp/dst.test -test.run '^TestSchedules$$' -test.timeout $(TIMEOUT)

.PHONY: dst-deep
dst-deep: dst-binary ## The same with every pair of faults in every combination, and more: over two million schedules
	cd internal/dst && ../../.tmp/dst.test -test.run '^TestSchedules$$' -test.timeout 8h -deep

.PHONY: dst-binary
dst-binary: ## Compile the fault schedules
	$(GO) test -c -o .tmp/dst.test ./internal/dst

.PHONY: crash
crash: ## Cut the power, kill processes and damage files under the stores and artifacts, far more than the tests do
	$(GO) build -o .tmp/crash ./internal/crash
	.tmp/crash

.PHONY: stream-chaos
stream-chaos: ## Kill, stall and cut three nats-servers and three nova nodes under load, and judge the log; SEED=n, TIME=2m
	$(GO) build -o .tmp/streamchaos ./internal/streamchaos/cmd/streamchaos
	.tmp/streamchaos -seed $(or $(SEED),1) -time $(or $(TIME),2m)

.PHONY: bench
bench: ## Measure what the README and the decisions quote; the last lines are the ratios
	$(GO) run ./internal/bench

.PHONY: repair-bench
repair-bench: ## Measure repairs of 1M and 5M keys beside a full hydrate (needs 6 GB of disk)
	$(GO) run ./internal/bench -only repair -rounds 3

.PHONY: artifact-bench
artifact-bench: ## Take a fold of 5 GiB through export, publish and import in bounded memory (needs 20 GB of disk)
	$(GO) run ./internal/bench -only bigartifact

.PHONY: stream-bench
stream-bench: ## Measure streams beside bare JetStream on one nats-server; the last lines are the ratios
	$(GO) run ./internal/bench/streams

.PHONY: cover
cover: ## Run every test and print each function's coverage
	$(GO) test -timeout $(TIMEOUT) -coverpkg=./runtime/...,./internal/...,./cmd/... -coverprofile=coverage.txt ./...
	$(GO) tool cover -func=coverage.txt

.PHONY: tidy
tidy: ## Bring both go.mod files in line with the imports
	$(GO) mod tidy
	cd tools && $(GO) mod tidy

.PHONY: clean
clean: ## Remove what the other targets leave behind
	rm -rf .tmp bin coverage.txt
