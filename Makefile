# p2pbench. `make help` lists the targets. Go and git are required; scripts/setup installs all other tools.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
GO_BUILD := go build -trimpath -buildvcs=false $(if $(VERSION),-ldflags '-X main.version=$(VERSION)')
export PATH := $(CURDIR)/bin/tools:$(PATH)

# The fake libraries in testdata are not formatted.
C_FILES = $(shell find cmd internal scripts \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) \
	-not -path '*/testdata/*')
SH_FILES := scripts/setup scripts/gpu-acceptance scripts/rdma-acceptance scripts/stamp-headers scripts/build-kernels \
	scripts/rxe-vm scripts/rxe-vm.d/init scripts/rxe-vm.d/guest scripts/rxe-vm.d/kernel \
	scripts/bench/cpu-peers scripts/bench/cells scripts/bench/gate ci/gate .ci/run
# The race detector does not see C: it runs on the packages without cgo that start goroutines, in code or tests. Of
# verdict it runs the one test that does: simulations take 20 times as long under it.
RACE_PACKAGES = $(filter-out %/internal/verdict,$(shell go list -f '{{if not .CgoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./internal/... | \
	while read -r package dir; do ! grep -qsE '^\s*go [a-z]|\.Go\>' "$$dir"/*.go || echo "$$package"; done))

CROSS_PREFIX := aarch64-linux-gnu
QEMU := $(if $(filter aarch64,$(shell uname -m)),,qemu-aarch64 -L /usr/$(CROSS_PREFIX))
TESTFLAGS ?= -short

##@ build and use
build: ## build bin/p2pbench
	$(GO_BUILD) -o bin/p2pbench ./cmd/p2pbench

setup: ## install all tools that the other targets need
	scripts/setup all

demo: ## install the build tools, build, and run the default sweep between two processes
	scripts/setup build
	$(MAKE) --no-print-directory build
	bin/p2pbench ipc --size-sweep

##@ develop
# Vet is part of lint. Packages under the race detector are not run a second time without it.
test: ## run the tests in their short form; TESTFLAGS= runs the long one
	scripts/setup build
	go test -vet=off -timeout 10m $(TESTFLAGS) $(filter-out $(RACE_PACKAGES),$(shell go list ./...))
	CGO_ENABLED=1 go test -vet=off -timeout 10m -race $(TESTFLAGS) $(RACE_PACKAGES)
	CGO_ENABLED=1 go test -vet=off -timeout 10m -race $(TESTFLAGS) -run 'TestPower$$' ./internal/verdict

lint: ## check format, linters, C warnings as errors, and the rules of internal/archtest
	scripts/setup build lint
	golangci-lint run
	@echo gofumpt; out=$$(gofumpt -l .); [ -z "$$out" ] || { echo "gofumpt -w these files:"; echo "$$out"; exit 1; }
	clang-format-19 --dry-run -Werror $(C_FILES)
	shellcheck $(wildcard $(SH_FILES))
	CGO_CFLAGS='-g -O2 -Werror' go build ./...
	$(MAKE) --no-print-directory -B bin/bareloop
	go test ./internal/archtest

fmt: ## format Go and C
	scripts/setup build lint
	gofumpt -w .
	clang-format-19 -i $(C_FILES)
	scripts/stamp-headers

kernels: ## rebuild the committed device code
	scripts/setup kernels
	scripts/build-kernels

kernels-check: ## rebuild the device code in a temporary folder and compare
	scripts/setup kernels
	scripts/build-kernels --check

cross: ## build for arm64 and run a sweep, under qemu on other machines
	scripts/setup build cross
	CGO_ENABLED=1 GOOS=linux GOARCH=arm64 CC=$(CROSS_PREFIX)-gcc $(GO_BUILD) -o bin/p2pbench-arm64 ./cmd/p2pbench
	timeout 120 $(QEMU) bin/p2pbench-arm64 ipc --device host --sizes 8,1K,64K -n 20 \
		--launcher '$(QEMU)' --timeout 30s --out bin/cross.json
	@scripts/bench/cells --all-verified bin/cross.json

check: lint test kernels-check cross ## everything that must pass before a change is merged

##@ hardware
test-gpu: gpu-binaries ## run the acceptance test on the GPUs of this machine (CONTRIBUTING.md: on a machine without Go)
	scripts/gpu-acceptance bin/gpu-report

gpu-binaries: build bin/bareloop ## build the programs for scripts/gpu-acceptance
	mkdir -p bin/tests
	go test -c -trimpath -buildvcs=false -o bin/tests/ ./internal/gpu/cuda ./internal/transport/ipc ./internal/transport/memcpy \
		./internal/transport/nccl ./internal/transport/sendrecv ./cmd/p2pbench

test-rdma: rdma-binaries ## run the acceptance test on this machine's RDMA device, or on soft-RoCE in a VM
	@if grep -qsw ACTIVE /sys/class/infiniband/*/ports/*/state; then \
		scripts/rdma-acceptance; \
	else \
		scripts/setup rdma; \
		scripts/rxe-vm --timeout 1600 -- scripts/rdma-acceptance; \
		scripts/rxe-vm --timeout 600 --two-hosts --cpus 1 -- scripts/rdma-acceptance; \
	fi

rdma-binaries: build ## build the programs for scripts/rdma-acceptance
	mkdir -p bin/tests
	go test -c -trimpath -buildvcs=false -o bin/tests/ ./internal/transport/rdma/verbs ./internal/transport/rdma

bench: build bin/bareloop ## compare with UCX and libfabric on this machine's CPUs
	scripts/setup peers
	scripts/bench/cpu-peers

bin/bareloop: scripts/bench/bareloop.c
	@mkdir -p bin
	gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o $@ $< -ldl

##@ other
clean: ## remove everything that was built, except bin/tools
	if [ -d bin ]; then find bin -mindepth 1 -maxdepth 1 -not -name tools -exec rm -rf {} +; fi
	rm -rf .cache

help: ## list the targets
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build setup demo test lint fmt kernels kernels-check cross check test-gpu gpu-binaries test-rdma rdma-binaries bench clean help
