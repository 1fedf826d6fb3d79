# p2pbench. `make help` lists the targets. Tools are installed by scripts/setup; nothing else is assumed but Go and git.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
GO_BUILD := go build -trimpath -buildvcs=false $(if $(VERSION),-ldflags '-X main.version=$(VERSION)')
export PATH := $(CURDIR)/bin/tools:$(PATH)

# The fakes under testdata keep their own shape.
C_FILES = $(shell find cmd internal scripts \( -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) \
	-not -path '*/testdata/*')
SH_FILES := scripts/setup scripts/gpu-acceptance scripts/rdma-acceptance scripts/stamp-headers scripts/build-kernels \
	scripts/rxe-vm scripts/rxe-vm.d/init scripts/rxe-vm.d/guest scripts/rxe-vm.d/kernel \
	scripts/bench/cpu-peers scripts/bench/cells .ci/run
# The race detector sees Go only: it watches the packages that have no C.
RACE_PACKAGES = $(shell go list -f '{{if not .CgoFiles}}{{.ImportPath}}{{end}}' ./internal/...)

CROSS_PREFIX := aarch64-linux-gnu
QEMU := $(if $(filter aarch64,$(shell uname -m)),,qemu-aarch64 -L /usr/$(CROSS_PREFIX))
TESTFLAGS ?=

##@ build and use
build: ## build bin/p2pbench
	$(GO_BUILD) -o bin/p2pbench ./cmd/p2pbench

setup: ## install every tool that the other targets need
	scripts/setup all

demo: ## build from nothing, then sweep every size between two processes
	scripts/setup build
	$(MAKE) --no-print-directory build
	bin/p2pbench ipc --size-sweep

##@ develop
test: ## run every test, then the race detector where there is no C
	scripts/setup build
	go test -timeout 10m $(TESTFLAGS) ./...
	CGO_ENABLED=1 go test -timeout 10m -race $(RACE_PACKAGES)

lint: ## format, linters, C warnings as errors, the house's own rules
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

kernels-check: ## rebuild the device code elsewhere and compare
	scripts/setup kernels
	scripts/build-kernels --check

cross: ## build for arm64 and run the main job there, under qemu on other machines
	scripts/setup build cross
	CGO_ENABLED=1 GOOS=linux GOARCH=arm64 CC=$(CROSS_PREFIX)-gcc $(GO_BUILD) -o bin/p2pbench-arm64 ./cmd/p2pbench
	timeout 120 $(QEMU) bin/p2pbench-arm64 ipc --device host --sizes 8,1K,64K -n 20 \
		--launcher '$(QEMU)' --timeout 30s --out bin/cross.json
	@scripts/bench/cells --all-verified bin/cross.json

check: lint test kernels-check cross ## all that must hold before a change goes in

##@ hardware
test-gpu: gpu-binaries ## accept this build on the GPUs of this machine (needs no Go there: see CONTRIBUTING.md)
	scripts/gpu-acceptance bin/gpu-report

gpu-binaries: build bin/bareloop ## build what scripts/gpu-acceptance runs
	mkdir -p bin/tests
	go test -c -trimpath -buildvcs=false -o bin/tests/ ./internal/gpu/cuda ./internal/transport/ipc ./internal/transport/memcpy \
		./internal/transport/nccl ./internal/transport/sendrecv ./cmd/p2pbench

test-rdma: rdma-binaries ## accept this build on the RDMA device of this machine, or on soft-RoCE in a VM
	@if grep -qsw ACTIVE /sys/class/infiniband/*/ports/*/state; then \
		scripts/rdma-acceptance; \
	else \
		scripts/setup rdma; \
		scripts/rxe-vm --timeout 1600 -- scripts/rdma-acceptance; \
		scripts/rxe-vm --timeout 600 --two-hosts --cpus 1 -- scripts/rdma-acceptance; \
	fi

rdma-binaries: build ## build what scripts/rdma-acceptance runs
	mkdir -p bin/tests
	go test -c -trimpath -buildvcs=false -o bin/tests/ ./internal/transport/rdma/verbs ./internal/transport/rdma

bench: build bin/bareloop ## compare with UCX and libfabric on this machine's CPUs
	scripts/setup peers
	scripts/bench/cpu-peers

bin/bareloop: scripts/bench/bareloop.c
	@mkdir -p bin
	gcc -std=gnu11 -O2 -Wall -Wextra -Werror -o $@ $< -ldl

##@ the rest
clean: ## remove everything that was built, but for the tools
	if [ -d bin ]; then find bin -mindepth 1 -maxdepth 1 -not -name tools -exec rm -rf {} +; fi
	rm -rf .cache

help: ## this list
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build setup demo test lint fmt kernels kernels-check cross check test-gpu gpu-binaries test-rdma rdma-binaries bench clean help
