# Every target works as the first command on a machine that has CPython >= 3.11 (test-real: Go as well).
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
ifeq ($(PYTHON),)
$(error No CPython >= 3.11 found on PATH: install one, or say PYTHON=/path/to/python3.11)
endif
# Whoever keeps Python from writing bytecode has each process of the tests compile all of the package anew.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv/$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
CLIENTS := .venv/clients-$(notdir $(VENV))
WITH_CLIENTS := $(CLIENTS)/.installed
LOWEST := .venv/lowest-$(notdir $(VENV))
WITH_LOWEST := $(LOWEST)/.installed
# Another Kopf, with the newest of all else. The lowest and the newest are in other environments.
KOPF ?= 1.44.6
OTHER_KOPF := .venv/kopf-$(KOPF)-$(notdir $(VENV))
WITH_OTHER_KOPF := $(OTHER_KOPF)/.installed
SITE := .venv/docs-$(notdir $(VENV))
WITH_SPHINX := $(SITE)/.installed
# Chromium comes as an npm package: no other download is needed.
LOOK := .venv/look
WITH_CHROMIUM := $(LOOK)/.installed
RELEASE := .venv/release-$(notdir $(VENV))
WITH_RELEASE := $(RELEASE)/.installed
DEMO := .venv/demo-$(notdir $(VENV))
WITH_DEMO := $(DEMO)/.installed

.PHONY: help env demo demo-shards test test-kit proofs cover cover-lines quick test-real test-real-all test-deploy test-clients test-lowest test-kopf comparison bench test-bench structure soak hostile campaign-shards model world mutants test-all test-versions test-version envs lint docs look pictures test-oldest servers field-labels merge-types dist try-dist release-check clean

help:  ## Show what can be made.
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

env: $(INSTALLED)  ## Make the environment (.venv/X.Y) and install into it.

$(INSTALLED): setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=24'
	$(PY) -m pip install --quiet --disable-pip-version-check -e '.[test,lint]'
	touch $@

envs: $(INSTALLED) $(WITH_CLIENTS) $(WITH_LOWEST) $(WITH_OTHER_KOPF) $(WITH_SPHINX)  ## Make the environments of all targets and interpreters but that of the demo.
	@for python in $$(tests/pythons); do \
		env=.venv/$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		[ -e $$env/.installed ] && continue; \
		$$python -m venv --without-pip $$env && $(call INSTALL,$$env) -e '.[test,lint]' && touch $$env/.installed || exit 1; done

# An environment without the tools of tests and lint. setuptools warns about each editable installation.
$(WITH_DEMO): setup.cfg pyproject.toml
	@echo "Installing the package into $(DEMO), once ..."
	@$(PYTHON) -m venv $(DEMO)
	@$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=24'
	@PYTHONWARNINGS=ignore $(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[metrics,testing]'
	@touch $@

demo: $(WITH_DEMO)  ## Show what it does, in about a minute and without a cluster.
	@$(DEMO)/bin/python examples/demo/demo.py $(ARGS)

demo-shards: $(WITH_DEMO)  ## Show three replicas that share namespaces: kill one with a key, and watch; ARGS=--scripted does it by itself.
	@$(DEMO)/bin/python examples/demo/shards.py $(ARGS)

# What tests the kit that the package gives to tests, the tests' own tools, and the bench. `make test` leaves it out, but for what
# only lost answers of a server lead to, and for the figures of the structure.
LOST := $(addprefix tests/conformance/test_lost_,updates.py events.py)
TOOLS := $(addprefix tests/,apiserver model test_canaries.py)
KIT := tests/testing tests/conformance $(addprefix --ignore=,$(LOST)) $(TOOLS)
NO_PRODUCT := $(addprefix --ignore=,tests/testing $(TOOLS)) \
	$(patsubst %,--ignore-glob='tests/%*',conformance/test_[!l] conformance/test_l[!o] bench/test_[!s] bench/test_s[!t])
# Enumerations, explorations, simulations, attacks, comparisons with brute force and with Go.
ENUMERATIONS := tests/oracle tests/hostile tests/model tests/assignment tests/world $(addprefix tests/,products selectors/test_containment.py selectors/test_properties.py) \
	$(addprefix tests/core/,$(addprefix store/test_,union.py change_orders.py split.py)) tests/faults/test_soak.py
# What depends on the version of Python: its event loop, threads, regular expressions, messages and the syntax that commands read.
VERSIONED := $(addprefix tests/,client testing/test_fake.py reactions core/test_scanner.py cache/test_threads.py cache/test_misused.py products/test_filter_change_threads.py plugin/test_signals.py plugin/test_told_to_kopf.py cli/test_rbac.py)
# A process for each processor, but for no more than make sense here. What ARGS ask for runs in one, to be seen and debugged.
PARALLEL := --numprocesses=auto --maxprocesses=4 --dist=worksteal
# Tests wait for each other's servers and processes as well: one more has something to do meanwhile.
WAITING := --numprocesses=$(shell $(PYTHON) -c 'import os; print(min(4, 1 + (os.cpu_count() or 1)))') --dist=worksteal
# What relies on Kopf's private names, and calls of its code that nobody promises to stay as they are.
TOUCHING_KOPF := plugin feed cache/formats $(addprefix sharding/test_kopf_,feeds.py handlers.py indices.py whole.py writes.py) \
	$(addprefix cli/test_,check.py outside.py rbac.py rbac_late.py)
# Of those, what our code decides once Kopf has called it: the newest Kopf shows it.
OURS := $(addprefix plugin/test_,brake.py growth.py signals.py import_alone.py last_line.py raised.py reconcile.py \
	reconcile_patches.py reconcile_failures.py leftover_finalizers.py plain_patches.py dropped_fields.py)
# The names and calls themselves. A version between the lowest and the newest has no more to show.
NAMES_OF_KOPF := feed sharding/test_kopf_whole.py $(addprefix plugin/test_,kopf_names.py kopf_vault.py told_to_kopf.py feed.py feed_returns.py \
	feed_ends.py feed_safety.py narrowing.py operator.py handlers.py change_handlers.py deadline.py peering.py)
SCANNING := $(addprefix tests/,core/test_scanner.py core/protocol/test_unreadable_cost.py cache/test_unreadable.py)
# Each process has a real API server of its own, and waits more than it works.
SERVERS := --numprocesses=3
# The environments of `make env` have pip; it installs into the others, which need none of their own. Of thousands of modules, those that
# are imported are compiled then.
INSTALL = $(PY) -m pip --python $(1)/bin/python install --quiet --disable-pip-version-check --no-compile
# An environment with some packages in other versions; all else is that of `make env`, and it is made anew when that is.
BESIDE = $(PYTHON) -m venv --clear --without-pip $(1) && echo "import site; site.addsitedir('$(abspath $(VENV))/lib/python$(notdir $(VENV))/site-packages')" \
	> $(1)/lib/python$(notdir $(VENV))/site-packages/beside.pth && $(call INSTALL,$(1)) -e .
# The only folders with tests that need the real server; tests/conftest.py sees to it.
REAL := $(addprefix tests/,clients conformance differential feed real)
# From CPython 3.12 on, lines cost nearly nothing to measure by `sys.monitoring`; branches, from 3.14 on.
CORE = $$($(PY) -c 'import sys; print("sysmon" if hasattr(sys, "monitoring") else "ctrace")')

test: $(INSTALLED)  ## Test the product: 4 minutes on two processors. COVER=lines or COVER=branches measures that all but testing/ and cli/ is covered.
	$(if $(COVER),COVERAGE_CORE=$(CORE)) $(PY) -m pytest $(if $(COVER),--cov --cov-report= $(if $(filter branches,$(COVER)),--cov-branch)) \
		$(or $(ARGS),$(WAITING) $(NO_PRODUCT))
	$(if $(COVER),$(if $(ARGS),,$(PY) -m coverage report --fail-under=100))

cover: $(INSTALLED)  ## The same as make test COVER=branches. Take PYTHON=python3.14: it takes twice as long on older ones.
	$(MAKE) --no-print-directory test COVER=branches

cover-lines: $(INSTALLED)  ## The same as make test COVER=lines. Take PYTHON=python3.12 or a newer one.
	$(MAKE) --no-print-directory test COVER=lines

test-kit: $(INSTALLED)  ## Test the test kit and the tests' own tools: FakeCache and the embedded API server, which answers as the real one does.
	$(PY) -m pytest $(or $(ARGS),$(WAITING) $(KIT))

proofs: $(INSTALLED)  ## Run the tests that seeded bugs name, and no others: each promise to users has some.
	@mkdir -p build
	$(PY) -m tests.mutants --tests > build/proofs
	$(PY) -m pytest $(WAITING) $(ARGS) @build/proofs

# The tests that find most for their time: those of what others build on, without proofs, random bytes and processes.
FAST := $(addprefix tests/,core selectors settings cache reactions messages mutants)
NOT_FAST := $(ENUMERATIONS) $(addprefix tests/,core/test_scanner.py cache/test_deep_stacks.py)

quick: $(INSTALLED)  ## Run the tests of core, selectors, settings, cache and reactions, without enumerations: half a minute on two processors.
	$(PY) -m pytest $(PARALLEL) $(or $(ARGS),$(FAST) $(addprefix --ignore=,$(NOT_FAST)))

# Make passes KUBERNETES=1.33 on in the environment; tests/apiserver/build.py knows the versions. Tests that an older server cannot pass
# are skipped with the reason.
test-real: $(INSTALLED)  ## Run what asks the real kube-apiserver how it behaves (needs Go, or KUBEBUILDER_ASSETS); KUBERNETES=1.33 takes an older one.
	$(PY) -m pytest -rs $(if $(ARGS),-m real $(ARGS),-m 'real and not aside and not soak' $(SERVERS) --dist=loadfile $(REAL))

test-real-all: $(INSTALLED)  ## Run all tests that need the real kube-apiserver, those of the tests' own tools and of speed as well.
	$(PY) -m pytest -rs -m 'real and not soak' $(SERVERS) --dist=loadfile $(REAL)

test-deploy: dist  ## Render the chart of examples/deploy with helm for the real API server, and run the commands of its Dockerfile (needs Go; builds helm once, which takes minutes).
	$(PY) -m tests.apiserver.helm
	$(PY) -m pytest -rs -m real $(or $(ARGS),tests/real/test_deploy.py)

$(WITH_CLIENTS): setup.cfg pyproject.toml | $(INSTALLED)
	$(PYTHON) -m venv --without-pip $(CLIENTS)
	$(call INSTALL,$(CLIENTS)) -e '.[clients]'
	touch $@

test-clients: $(WITH_CLIENTS)  ## Run other clients of Kubernetes against the embedded API server and the real one.
	$(CLIENTS)/bin/python -m pytest -m clients -rs $(or $(ARGS),$(SERVERS) --dist=worksteal tests/clients)

$(WITH_LOWEST): setup.cfg pyproject.toml $(INSTALLED)
	$(call BESIDE,$(LOWEST)) \
		$$(sed -nE '/^install_requires/,/^$$/ s/^    ([a-z]+)>=([0-9.]+).*/\1==\2/p' setup.cfg)
	$(PY) -m pip --python $(LOWEST)/bin/python check --quiet
	touch $@

test-lowest: $(WITH_LOWEST)  ## Run what touches Kopf or aiohttp on the lowest versions that are supported; all else runs on the newest there are.
	$(LOWEST)/bin/python -m pytest -rs $(or $(ARGS),$(PARALLEL) $(addprefix --ignore=tests/,$(OURS)) $(addprefix tests/,$(TOUCHING_KOPF) client testing/test_admission.py))

$(WITH_OTHER_KOPF): setup.cfg pyproject.toml $(INSTALLED)
	$(call BESIDE,$(OTHER_KOPF)) kopf==$(KOPF)
	$(PY) -m pip --python $(OTHER_KOPF)/bin/python check --quiet
	touch $@

test-kopf: $(WITH_OTHER_KOPF)  ## Run what takes names of Kopf with Kopf 1.44.6; KOPF=1.45.0 takes another one.
	$(OTHER_KOPF)/bin/python -m pytest -rs $(or $(ARGS),$(PARALLEL) $(addprefix tests/,$(NAMES_OF_KOPF)))

comparison: $(WITH_CLIENTS)  ## Play the faults to our cache, Kopf's index and the Python informer, and to two operators; write bench/FAULTS.md.
	$(CLIENTS)/bin/python -m bench.comparison $(ARGS)
	$(if $(ARGS),@true || ,)$(CLIENTS)/bin/python -m bench.clustersecret

bench: $(INSTALLED) $(WITH_CLIENTS)  ## Measure our cache beside its peers on a real API server (needs Go); ARGS=--quick takes six minutes, all of it 45.
	$(PY) -m bench --clients $(CLIENTS)/bin/python --data grouped,unrelated $(ARGS)

test-bench: $(INSTALLED)  ## Test the bench, and run it with few objects, to see that it measures what it says (needs Go).
	$(PY) -m pytest -m 'not soak and not clients and not real' -rs $(or $(ARGS),$(PARALLEL) tests/bench)

structure: $(INSTALLED)  ## Count what shows the structure of the package: folders, layers, cycles, calls, messages, lines; beside 0.1.0 and the targets.
	$(PY) -m bench.structure $(ARGS)

soak: $(INSTALLED)  ## Walk through every order of two and three streams, simulate a million operations, play 10,000 faults over sockets, reconcile 100,000 changes on both servers: two hours.
	$(PY) -m pytest -m soak $(or $(ARGS),$(PARALLEL) $(addprefix tests/,assignment core faults feed hostile informer model products selectors reactions oracle world conformance real/test_filter_change.py real/test_own_writes.py real/test_reconcile.py real/test_counters.py real/test_finalizers.py testing/test_wrong_types.py test_demo.py))

hostile: $(INSTALLED)  ## Play a hostile server to caches on real time, and print what they do and take: a quarter of an hour; ARGS are words of names.
	$(PY) -m tests.hostile $(ARGS)

campaign-shards: $(INSTALLED)  ## Kill 500 replicas of two operators on the real API server, and judge what they wrote by its audit log: two hours, in pieces that go on where they ended; ARGS="--kills 10 --lease 40" for the default Lease.
	$(PY) -m tests.sharding.campaign $(ARGS)

model: $(INSTALLED)  ## Explore the model of a cache with several streams, and print which of its mistakes are found; ARGS="--large --mistakes" for more.
	$(PY) -m tests.model $(ARGS)

world: $(INSTALLED)  ## Play random worlds, and compare each read with the history of the server; ARGS=SEED plays one and prints its steps, ARGS="--worlds 1000" searches.
	$(PY) -m tests.world $(ARGS)

mutants: $(INSTALLED)  ## Put each seeded bug into a copy of the package, and show which test catches it.
	$(PY) -m tests.mutants $(ARGS)

test-all: test test-kit test-bench test-versions  ## All that needs no real server and no other packages.

test-versions: $(INSTALLED)  ## Run what depends on the version of Python on every other CPython >= 3.11 of this machine.
	@for python in $$(tests/pythons); do \
		version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
		if [ $$version = $(notdir $(VENV)) ]; then continue; fi; \
		echo "== $$python"; $(MAKE) --no-print-directory env PYTHON=$$python || exit 1; \
		$(MAKE) --no-print-directory test-version PYTHON=$$python || exit 1; done

test-version: $(INSTALLED)
	$(PY) -m pytest $(or $(ARGS),$(PARALLEL) $(VERSIONED))

# CPython before 3.11.5 matches some patterns otherwise. It takes the packages of another 3.11: it may have no pip.
test-oldest: $(INSTALLED)  ## Run the tests of the scanner on each CPython 3.11.0 to 3.11.4 of this machine.
	@for python in $$(type -ap python3 python3.11 | xargs -n1 readlink -f | sort -u); do \
		$$python -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 11, 5))' 2>/dev/null || continue; \
		[ -d .venv/3.11 ] || $(MAKE) --no-print-directory env PYTHON=$$python || exit 1; \
		$$python --version; PYTHONPATH=.:.venv/3.11/lib/python3.11/site-packages $$python -m pytest $(or $(ARGS),$(SCANNING)) || exit 1; done

servers: $(INSTALLED)  ## Build the real API server into your cache folder, unless it is there; KUBERNETES=1.33 builds an older one.
	$(PY) -m tests.apiserver.build

lint: $(INSTALLED)  ## ruff and its format, mypy --strict, and the layers.
	$(PY) -m ruff check
	$(PY) -m ruff format --check --quiet
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-cache

$(WITH_SPHINX): setup.cfg pyproject.toml | $(INSTALLED)
	$(PYTHON) -m venv --without-pip $(SITE)
	$(call INSTALL,$(SITE)) -e '.[docs]'
	touch $@

docs: $(WITH_SPHINX)  ## Build the pages of docs/ into a site, build/docs/index.html; a link that leads nowhere is an error.
	$(SITE)/bin/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs
	@echo build/docs/index.html

$(WITH_CHROMIUM):
	npm install --silent --no-fund --no-audit --prefix $(LOOK) @sparticuz/chromium@153.0.0 puppeteer-core@25.16.0
	touch $@

look: docs $(WITH_CHROMIUM)  ## Look at the site in Chromium: is a page too wide, or text cut off (needs Node.js)? ARGS="--shots build/shots" takes screenshots.
	cp docs/dev/look.mjs $(LOOK)/look.mjs && node $(LOOK)/look.mjs build/docs $(ARGS)

pictures: $(INSTALLED)  ## Draw the pictures of README.md and docs/ anew, for light and dark pages.
	$(PY) -m tests.docs.pictures

field-labels:  ## Generate the table of field labels anew from Kubernetes' own code (needs Go).
	cd tests/apiserver && GOTOOLCHAIN=local CGO_ENABLED=0 go run ./fieldlabels > ../../kopf_selectcache/core/selection/_field_table.py.new
	mv kopf_selectcache/core/selection/_field_table.py.new kopf_selectcache/core/selection/_field_table.py

merge-types: $(INSTALLED)  ## Generate the tables of fields, and of server-side apply, from Kubernetes' own schema (needs Go).
	$(PY) -m tests.apiserver.known_fields > kopf_selectcache/testing/api/_known_fields.py.new
	mv kopf_selectcache/testing/api/_known_fields.py.new kopf_selectcache/testing/api/_known_fields.py
	$(PY) -m tests.apiserver.merge_types > kopf_selectcache/testing/api/_merge_table.py.new
	mv kopf_selectcache/testing/api/_merge_table.py.new kopf_selectcache/testing/api/_merge_table.py
	$(PY) -m ruff format --quiet kopf_selectcache/testing/api/_merge_table.py

dist: $(INSTALLED)  ## Build the wheel and the sdist into dist/.
	rm -rf dist
	$(PY) -m build --quiet
	@ls dist

$(WITH_RELEASE): setup.cfg pyproject.toml | $(INSTALLED)
	$(PYTHON) -m venv --without-pip $(RELEASE)
	$(call INSTALL,$(RELEASE)) $$($(PY) -c 'import configparser as c; p = c.ConfigParser(); p.read("setup.cfg"); print(p["options.extras_require"]["release"])')
	touch $@

# Their versions are in the SBOM: an environment with the wheel, and what it needs to run.
release-check: dist $(WITH_RELEASE)  ## Inspect the wheel and the sdist, use them and README on each CPython >= 3.11, compare versions, and write build/sbom.json. Uploads nothing.
	$(PY) -m tests.release.versions
	$(RELEASE)/bin/twine --no-color check --strict dist/*
	$(RELEASE)/bin/check-wheel-contents dist/*.whl
	$(RELEASE)/bin/check-manifest
	.ci/try-dist $(PY) $$(tests/pythons)
	$(PYTHON) -m venv --clear --without-pip build/runtime
	$(call INSTALL,build/runtime) dist/*.whl
	$(RELEASE)/bin/cyclonedx-py environment --output-reproducible --output-file build/sbom.json build/runtime/bin/python
	@echo build/sbom.json

try-dist: dist  ## Install the wheel and the sdist into fresh environments, and use them there.
	.ci/try-dist $(PY)

clean:  ## Remove what was made here (not the servers kept in the user's cache folder).
	rm -rf .venv build dist *.egg-info .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
