# stoker: two commands do all set-up on a fresh machine.
#   make demo    builds the engine and runs the main job on a small dataset; needs Go
#                and a C compiler, and uses libjpeg-turbo and libwebp where they are
#   make test    needs both, makes .venv, and runs every check and every test
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := demo

# Some systems set their Go to get no newer one by itself. CI sets `local`.
GOTOOLCHAIN ?= auto
export GOTOOLCHAIN
# Tags of the C libraries that are here; `make demo STOKER_TAGS=` builds without them.
STOKER_TAGS := $(shell tools/tags.sh)
comma := ,
# A static engine needs Go's own look-up of hosts and users. Tests and tools have the same tags, so that a package is
# compiled once.
TAGS := netgo,osusergo$(if $(STOKER_TAGS),$(comma)$(STOKER_TAGS))
export GOFLAGS := -buildvcs=false -tags=$(TAGS)
ifneq ($(shell tools/tags.sh --cflags),)
export CGO_CFLAGS ?= -O2 -g $(shell tools/tags.sh --cflags)
endif
ifneq ($(shell tools/tags.sh --ldflags),)
export CGO_LDFLAGS ?= -O2 -g $(shell tools/tags.sh --ldflags)
endif
# A -tags of a command line takes the place of those of GOFLAGS.
TAGS_AND = -tags $(1),$(TAGS)
PYTHON ?= python3
# pip installs into the environments made here, whatever it is told for others. A module is compiled when it is first
# imported, and kept, whatever the system says: else each process of a test compiles torch again, which takes ten seconds.
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_USER PYTHONDONTWRITEBYTECODE
PIP_INSTALL := python -m pip install -q --no-compile --disable-pip-version-check
VENV := .venv/bin
GO_SOURCES := $(shell find . -name '*.go' -not -path './.venv*' -not -path './build/*' -not -path './harness/*' -not -path './tools/*' 2>/dev/null) $(wildcard internal/base/kernel/*.c internal/base/kernel/*.h) go.mod VERSION

# The engine is static where the C libraries are, so that it runs on any Linux of its
# architecture; without a compiler it is pure Go, and says so.
CGO := $(shell tools/tags.sh --cc)
STATIC := $(shell tools/tags.sh --static)
ifeq ($(CGO),1)
BUILD := CGO_ENABLED=1 go build -ldflags '-s -w $(STATIC)'
else
BUILD := CGO_ENABLED=0 go build -ldflags '-s -w'
endif

.PHONY: always demo figures test setup setup-all engine venv check go-test servers servers-short test-remote cloud-test go-race go-builds go-nocgo go-bare go-portable go-fused go-fuzz go-asan kernel-chains facts-powercuts py-test py-test-long skips test-tools test-kills test-kills-python bench bench-venvs bench-transport bench-python bench-startup bench-index bench-order bench-formats bench-jpeg bench-entries bench-pictures bench-augment bench-recipes bench-remote bench-local bench-device augment-sheet doctor-score doctor-score-short faults soak soak-device fuzz fuzz-coverage mutants jpeg-fuzz jpeg-fuzz-short jpeg-libfuzzer unpack-fuzz jpeg-all wheel wheel-test wheel-test-short wheel-arm64 test-arm64 test-avx512 man clean test-frameworks test-recipes frameworks-and-recipes webp-fuzz gpu-test gpu-bench gpu-bundle

demo: setup engine
	@build/stoker demo

engine: setup build/stoker

# What comes or goes on the system changes how the engine is built.
build/how: always
	@mkdir -p build
	@echo "$${CC:-gcc}" "$$GOFLAGS" $(BUILD) | cmp -s - $@ || echo "$${CC:-gcc}" "$$GOFLAGS" $(BUILD) >$@

build/stoker: $(GO_SOURCES) build/how
ifeq ($(CGO),)
	@echo "building the pure-Go engine"
else ifeq ($(STATIC),)
	@echo "no static C libraries: the engine will run on systems like this one only"
endif
	@$(BUILD) -o build/stoker.new ./cmd/stoker && mv build/stoker.new build/stoker

# Says in a line what is missing that the engine would use.
setup:
	@bash tools/setup.sh

venv: .venv/ready
.venv/ready: python/pyproject.toml python/requirements-dev.txt
	@echo "making .venv for the tests: downloads about 3.5 GB and takes 6.5 GB of disk (10 GB while pip works), most of it torch with CUDA's libraries"
	@free=$$(df -Pk . | awk 'NR == 2 { print int($$4 / 1000000) }'); test "$$free" -ge 10 || { echo "there are only $$free GB free here, and making .venv needs 10"; exit 2; }
	$(PYTHON) -m venv .venv
	$(VENV)/$(PIP_INSTALL) -r python/requirements-dev.txt
	$(VENV)/$(PIP_INSTALL) --no-deps -e python
	@touch $@

# Prints what each part took. What one part shows is not shown again by another. Fuzzing,
# the race detector, the builds without C or without libraries, and the long forms of the
# Python tests are targets of their own (fuzz, go-race, go-builds, py-test-long), which CI runs.
# Go's tests need none of the Python environments, which are made beside them.
TEST_PARTS := go-test+.venv-frameworks/ready+build/tools/staticcheck+build/slownet check py-test frameworks-and-recipes doctor-score-short skips
test:
	@rm -f build/skips.jsonl
	@MAKE="$(MAKE)" bash tools/parts.sh "make test" setup-all $(TEST_PARTS)
	@echo "all checks and tests passed"

setup-all:
	@bash tools/setup.sh all

check: engine venv build/tools/staticcheck
	go vet ./...
	go -C harness vet ./...
	go vet $(call TAGS_AND,bench) ./bench/kernel ./bench/images/native $(if $(findstring stoker_libjpeg,$(STOKER_TAGS)),./bench/jpeg/native)
	@files=$$(git ls-files -co --exclude-standard '*.go' 2>/dev/null || find . -name '*.go' -not -path './.*' -not -path './build/*'); out=$$(build/tools/gofumpt -l $$files </dev/null); test -z "$$out" || { echo "not gofumpt-ed: $$out"; exit 1; }
	build/tools/staticcheck ./...
	cd harness && ../build/tools/staticcheck ./...
	$(VENV)/ruff check python bench examples internal/tool/doctor/hook
	$(VENV)/ruff format --check python bench examples internal/tool/doctor/hook
	$(VENV)/mypy --config-file python/pyproject.toml
	$(VENV)/python tools/words.py
	cd tools && go vet ./... && go test ./mutants
	$(if $(findstring stoker_libjpeg,$(STOKER_TAGS)),$${CC:-gcc} $(JPEG_FUZZ_FLAGS) -fsyntax-only internal/base/kernel/fuzz/*.c)

build/tools/staticcheck: tools/go.mod | build/stoker
	@mkdir -p build/tools
	cd tools && go build -o ../build/tools/ honnef.co/go/tools/cmd/staticcheck mvdan.cc/gofumpt

# The limit only ends tests that hang. Go's own, ten minutes for a package, is too short
# under the race detector while other processes use the cores.
LONG := 30m
# check vets everything, and without the debugger's tables a test is linked in half the time. Many tests wait, so
# one more package is tested at once than there are cores; of Python's tests, one more process.
TESTERS = $$(( $$(nproc) + 1 ))
GO_TEST = go test -vet=off -ldflags=-w -p $(TESTERS) -timeout $(LONG)

# It compiles everything once more, for arm64: go-builds runs it.
FUSED := ^TestNothingExactIsFused$$
# harness is a module of its own: what only tests need is no dependency of the product.
go-test: engine servers-short
	$(PYTHON) tools/skips.py $(GO_TEST) -skip '$(FUSED)' ./...
	cd harness && $(PYTHON) ../tools/skips.py $(GO_TEST) ./...

# Real servers, for the tests of what is read from them: those of make test, and all. The engine
# is built before this and before other programs for tests: side by side, each would compile the
# same packages.
servers-short: | build/stoker
	@bash tools/servers.sh --short
servers:
	@bash tools/servers.sh

# The sources against every server that they know: Go packages, files of python/tests, and a training whose store goes
# away for a minute, on the photographs of DATA if it is given.
REMOTE_PACKAGES := ./internal/stage/source/... ./internal/stagetest/...
REMOTE_TESTS := tests/test_buckets.py tests/test_secrets.py
test-remote: servers engine venv build/slownet .venv-frameworks/ready
	@rm -f build/skips.jsonl
	STOKER_SERVERS=all $(PYTHON) tools/skips.py $(GO_TEST) -count=1 $(REMOTE_PACKAGES)
	cd harness && STOKER_SERVERS=all $(PYTHON) ../tools/skips.py $(GO_TEST) -count=1 -run Clouds ./faults
	cd python && STOKER_SERVERS=all STOKER_ALL=1 ../$(VENV)/python -m pytest -q -n $(TESTERS) --dist worksteal $(REMOTE_TESTS)
	STOKER_ALL=1 && export STOKER_ALL && STOKER_TEST_PHOTOS="$(if $(DATA),$$(realpath -m -- "$(DATA)"))" && export STOKER_TEST_PHOTOS && $(FRAMEWORKS) frameworks/test_remote.py
	STOKER_ALL=1 && export STOKER_ALL && $(FRAMEWORKS) recipes/test_training.py -k bucket
	@$(PYTHON) tools/skips.py report

# The sources against a bucket of yours: make cloud-test URL=s3://bucket/prefix. What they
# need is uploaded there, with the credentials that the environment has, and removed.
cloud-test:
	STOKER_CLOUD_URL=$(URL) go test -count=1 -v -run '^TestCloud$$' -timeout $(LONG) ./internal/stagetest/cloud

# The proxy of tests that are written in Python.
build/slownet: $(shell find harness/slownet -name '*.go' 2>/dev/null) harness/go.mod | build/stoker
	@mkdir -p build
	go -C harness build -o ../build/slownet.new ./slownet/cmd && mv build/slownet.new build/slownet

# The campaign of faults: each fault of a network or a store, those that are random with 20
# seeds, in bench/results/faults.json. make test runs each once.
faults: servers venv
	$(VENV)/python -m bench.faults

# What is read from a bucket through a slow link, by stoker and by its peers, on the photographs of DATA: about an hour
# of a quiet machine.
bench-remote: engine venv servers build/slownet
	$(PYTHON) bench/setup.py remote
	$(VENV)/python -m bench.remote --data "$(DATA)" --out build/bench-remote.json

# What reading from stores costs those who read local files: start, memory and rates beside those of another engine,
# BEFORE, which is build/stoker of another checkout.
bench-local: engine venv
	$(VENV)/python -m bench.local --before "$(BEFORE)" --data "$(DATA)" --out build/bench-local.json

# What device= costs the training process, without a GPU.
bench-device: engine venv
	@test -n "$(DATA)" || { echo "usage: make bench-device DATA=folder-of-jpegs"; exit 2; }
	$(VENV)/python -m bench.device --data "$(DATA)" --out build/bench-device.json

# Which tests were skipped, and why; in CI some may not be.
skips:
	@$(PYTHON) tools/skips.py report

# Results of harmed bytes do not depend on threads: go-test shows them. Packages that start
# no threads are left out too: the tests of the loader and of the dataset run them from many
# goroutines.
HARM := ^(Fuzz|Test.*(Damag|Flipped|Cut|AnyBit|Forged|Bombs))
ALONE := /stage/(batch|decode|packing|format/(beton|hdf5/tree|lines|lmdb|npy|synthetic|tar|tfrecord))$$
go-race:
	$(GO_TEST) -race -short -skip '$(HARM)' $$(go list ./internal/dataset/... ./internal/stream/... ./internal/fill/... ./internal/compose/... ./internal/loader/... ./internal/engine/... ./internal/stage/... ./internal/base/mem ./internal/base/stats . | grep -vE '$(ALONE)')

# The engine's other builds, each with the tests that it could fail.
go-builds: go-nocgo go-bare go-portable go-fused

# All of it builds without C, the Go twins are held to their goldens, and whole epochs
# come out the same; what is between these does not see the kernel.
go-nocgo:
	CGO_ENABLED=0 go build ./...
	CGO_ENABLED=0 $(GO_TEST) -short ./internal/base/kernel/... ./internal/stage/decode/... ./internal/stage/transform/... .

# The C kernel without libjpeg-turbo and libwebp: with nothing but a C compiler. What
# inflates, widens and resamples is the same C with them, and go-test has shown it.
go-bare:
	CGO_ENABLED=1 $(GO_TEST) -tags '' -short -skip '^(Fuzz|Test(Inflate|Adler|LZW|Unpredict|Gzip|Unfilter|Widen|CopyOut))' ./internal/base/kernel/... ./internal/stage/decode/... ./internal/stage/transform/... ./internal/tool/pack/... ./internal/tool/demo/...

# The C for processors other than x86, as far as an x86 can test it. How much memory it
# takes, and what it makes of harmed bytes, do not depend on the processor.
go-portable:
	CGO_CFLAGS='-O2 -g -U__SSE2__' $(GO_TEST) -short -skip '$(HARM)|^Test(ScratchIsABound|LongestSides|RandomBytes|Truncation)$$' ./internal/base/kernel

go-fused:
	$(GO_TEST) -run '$(FUSED)' ./internal

# The C under AddressSanitizer, damaged pictures included.
go-asan:
	CGO_CFLAGS='-O1 -g -fsanitize=address -fno-omit-frame-pointer' CGO_LDFLAGS=-fsanitize=address go test -asan -count=1 ./internal/base/kernel

# Random chains of every step of the kernel, to the byte: CHAINS of them on every target of
# this machine, on the C for other processors, and without C; a tenth under AddressSanitizer.
CHAINS ?= 10000
CHAINS_TEST = go test -count=1 -timeout $(LONG) -v -run '^TestChains$$'
kernel-chains:
	STOKER_CHAINS=$(CHAINS) $(CHAINS_TEST) ./internal/base/kernel
	STOKER_CHAINS=$(CHAINS) CGO_CFLAGS='-O2 -g -U__SSE2__' $(CHAINS_TEST) ./internal/base/kernel
	STOKER_CHAINS=$(CHAINS) CGO_ENABLED=0 $(CHAINS_TEST) ./internal/base/kernel
	STOKER_CHAINS=$$(($(CHAINS) / 10)) CGO_CFLAGS='-O1 -g -fsanitize=address -fno-omit-frame-pointer' CGO_LDFLAGS=-fsanitize=address $(CHAINS_TEST) -asan ./internal/base/kernel

# Images of a disk after a power cut, at every point of a run, and processes that are killed while they write.
facts-powercuts:
	STOKER_POWERCUTS=$${IMAGES:-40000} STOKER_KILLS=$${KILLS:-100} go test -count=1 -timeout $(LONG) -v -run '^(TestPowerCuts|TestKills|TestEnginesAreKilled)$$' ./internal/stage/facts ./internal/loader

# worksteal keeps neighbouring tests in one process, which shares the fixtures of their
# module, until another process has nothing left to do.
py-test: engine venv build/slownet servers-short
	cd python && ../$(VENV)/python -m pytest -q -n $(TESTERS) --dist worksteal

# The long forms (python/tests/forms.py): every start method with every unit, every order with every setting. PART=1/3
# is one third of them, PART=2/3 the next. test-frameworks and test-recipes take it too.
py-test-long: engine venv build/slownet servers-short
	cd python && STOKER_ALL=long STOKER_PART=$(PART) ../$(VENV)/python -m pytest -q -n $(TESTERS) --dist worksteal

# The JPEG decoder on damaged files, against libjpeg-turbo: under AddressSanitizer
# and UBSan, between guard pages, and once more without sanitizers, which is faster.
# A finding leaves its input in build/, and says how to run it again.
JPEG_FUZZ := $(filter-out %/nolibjpeg.c,$(wildcard internal/base/kernel/*.c internal/base/kernel/fuzz/*.c))
JPEG_FUZZ_LINK := -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=posix_memalign,--wrap=stk_entry_enter -l:libjpeg.a -lm
JPEG_FUZZ_FLAGS := -std=gnu17 -g -Wall -Wextra -fno-strict-aliasing -Iinternal/base/kernel

build/jpeg-fuzz: $(JPEG_FUZZ) $(wildcard internal/base/kernel/*.h internal/base/kernel/fuzz/*.h)
	@mkdir -p build
	$${CC:-gcc} $(JPEG_FUZZ_FLAGS) -O2 $(JPEG_FUZZ) $(JPEG_FUZZ_LINK) -o $@

build/jpeg-fuzz-asan: $(JPEG_FUZZ) $(wildcard internal/base/kernel/*.h internal/base/kernel/fuzz/*.h)
	@mkdir -p build
	$${CC:-gcc} $(JPEG_FUZZ_FLAGS) -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer $(JPEG_FUZZ) $(JPEG_FUZZ_LINK) -o $@

# A minute, always of the same cases; and ten million of a seed.
jpeg-fuzz-short: build/jpeg-fuzz-asan build/jpeg-fuzz
	build/jpeg-fuzz-asan -seed 1 -seconds 40 -jobs $$(nproc) -out build
	build/jpeg-fuzz -seed 2 -seconds 20 -jobs $$(nproc) -out build

jpeg-fuzz: build/jpeg-fuzz-asan
	build/jpeg-fuzz-asan -seed $${SEED:-3} -n $${CASES:-10000000} -jobs $$(nproc) -out build

# The same with libFuzzer's guidance by coverage, for which only Debian's clang is needed;
# MINUTES of it. What it keeps is in build/jpeg-libfuzzer-corpus, a finding in build/.
build/jpeg-libfuzzer: $(JPEG_FUZZ) $(wildcard internal/base/kernel/*.h internal/base/kernel/fuzz/*.h internal/base/kernel/fuzz/guided/*)
	@mkdir -p build
	bash internal/base/kernel/fuzz/guided/build.sh $@

jpeg-libfuzzer: build/jpeg-libfuzzer
	@mkdir -p build/jpeg-libfuzzer-corpus
	JPEG_FUZZ_OUT=build build/jpeg-libfuzzer -max_total_time=$$((60 * $${MINUTES:-10})) -max_len=65536 -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 -artifact_prefix=build/ build/jpeg-libfuzzer-corpus

# The inflater, LZW and PNG's filters on damaged bytes, against zlib (Debian's zlib1g-dev).
UNPACK_FUZZ := $(addprefix internal/base/kernel/,inflate.c inflate_avx2.c lzw.c unfilter.c fuzz/unpack/main.c)
build/unpack-fuzz: $(UNPACK_FUZZ) internal/base/kernel/inflate.h internal/base/kernel/inflate_loop.h internal/base/kernel/lzw.h
	@mkdir -p build
	$${CC:-gcc} $(JPEG_FUZZ_FLAGS) -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer $(UNPACK_FUZZ) -l:libz.a -o $@

unpack-fuzz: build/unpack-fuzz
	build/unpack-fuzz -seed $${SEED:-1} -seconds $${SECONDS_EACH:-60}

# Our decoder of lossy WebP on damaged files, against libwebp.
WEBP_FUZZ := $(filter-out %/nolibjpeg.c,$(wildcard internal/base/kernel/*.c)) internal/base/kernel/fuzz/webp/main.c
build/webp-fuzz: $(WEBP_FUZZ) $(wildcard internal/base/kernel/*.h)
	@mkdir -p build
	$${CC:-gcc} $(JPEG_FUZZ_FLAGS) -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer $(WEBP_FUZZ) -l:libwebp.a -l:libjpeg.a -lm -lpthread -o $@

webp-fuzz: build/webp-fuzz
	build/webp-fuzz -seed $${SEED:-1} -seconds $${SECONDS_EACH:-60}

# Every size with every kind of JPEG, 200 boxes each, and of every photograph of a folder: from the beginning, from what
# is known of their entry points, and from each of these. That takes half an hour on two cores; EVERY=n tries
# one file in n, and FIRST=0 to n-1 says which.
jpeg-all:
	STOKER_JPEG_ALL=1 STOKER_JPEG_EVERY=$(EVERY) STOKER_JPEG_FIRST=$(FIRST) STOKER_TEST_PHOTOS="$(if $(DATA),$$(realpath -m -- "$(DATA)"))" go test -count=1 -timeout 12h -run 'TestGeneratedSet|TestBoxesOfPhotographs' -v ./internal/base/kernel

# What stoker writes, read by the tools that it is written for; TOOLS is a Python
# that has them (webdataset, tensorflow, numpy, and pytest and pillow for the tests).
TOOLS ?= $(VENV)/python
test-tools: engine
	$(TOOLS) testdata/pack/check.py build/stoker
	PYTHONPATH=python/src $(TOOLS) -m pytest -q -c python/pyproject.toml python/tests/test_shards.py -k webdataset

# stoker's loader under real trainers, killed and continued, and every recipe of examples/recipes: in an environment of
# its own, of 2 GB, that borrows torch from .venv. The whole takes ten minutes of four cores; `make test` runs the short
# form: what trainers in one process see, a kill of DDP's two ranks and one of NumPy, and a few recipes.
PACKAGES := -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'
.venv-frameworks/ready: .venv/ready python/requirements-frameworks.txt
	@echo "making .venv-frameworks for the tests with trainers: downloads about 0.6 GB and takes 2 GB of disk"
	$(PYTHON) -m venv .venv-frameworks
	$(VENV)/python $(PACKAGES) >"$$(.venv-frameworks/bin/python $(PACKAGES))/borrowed.pth"
	.venv-frameworks/bin/$(PIP_INSTALL) -r python/requirements-frameworks.txt
	@touch $@

FRAMEWORKS = cd python && OMP_NUM_THREADS=1 PYTHONPATH=src:tests ../.venv-frameworks/bin/python -m pytest -q --disable-warnings -p conftest -c pyproject.toml -n $(TESTERS) --dist worksteal
test-frameworks: engine .venv-frameworks/ready build/slownet
	STOKER_ALL=1 STOKER_PART=$(PART) && export STOKER_ALL STOKER_PART && $(FRAMEWORKS) frameworks

test-recipes: engine .venv-frameworks/ready build/slownet
	STOKER_ALL=1 STOKER_PART=$(PART) && export STOKER_ALL STOKER_PART && $(FRAMEWORKS) recipes

SHORT := $(addprefix frameworks/test_,trainers.py processes.py numpy.py) recipes
frameworks-and-recipes: engine .venv-frameworks/ready build/slownet
	$(FRAMEWORKS) $(SHORT)

# Fifty processes killed while they pack.
test-kills:
	STOKER_KILLS=$${KILLS:-50} go test -count=1 -run TestPackIsKilled -timeout 30m ./cmd/stoker

# Python workers are killed 200 times (KILLS), and engines and trainers 50 times each: ten minutes of two cores.
test-kills-python: engine venv
	cd python && STOKER_ALL=1 STOKER_KILLS=$${KILLS:-200} ../$(VENV)/python -m pytest -q tests/test_python_kills.py

# Steps on devices that can be wrong, drawn by a seed (SEED), STEPS of them: a quarter of an hour of one core.
soak-device: engine venv
	cd python/tests && PYTHONPATH=../src STEPS=$${STEPS:-100000} SEED=$${SEED:-} ../../$(VENV)/python soaked.py

soak: engine venv
	cd python && STOKER_ALL=1 STOKER_SOAK=$${KILLS:-200} ../$(VENV)/python -m pytest -q -k "kill or leak"

# Every Go fuzz target for ten seconds (SECONDS_EACH), and the JPEG decoder for a minute; unpack-fuzz and
# webp-fuzz are run on their own.
fuzz: go-fuzz jpeg-fuzz-short

go-fuzz:
	bash tools/fuzz.sh $${SECONDS_EACH:-10}

# Percent of lines of each parser that its fuzz targets reach: by their seeds, what Go's
# fuzzer has kept, and SECONDS_EACH more.
fuzz-coverage:
	$(PYTHON) tools/fuzz_coverage.py --seconds $${SECONDS_EACH:-10}

# Sixty small changes of the Go packages, one at a time, and the tests that cover each:
# half an hour of two cores. KEEP=1 does not repeat what was caught the last time.
mutants: engine
	@mkdir -p build/tools
	cd tools && go build -o ../build/tools/mutants ./mutants
	build/tools/mutants -seed $${SEED:-1} -jobs $$(nproc) $${KEEP:+-keep}

wheel:
	@bash tools/setup.sh wheel
	@$(MAKE) --no-print-directory engine
	bash tools/wheel.sh

# The wheel in fresh virtual environments of every Python (of pyenv, or on PATH), with NumPy
# and with the oldest and the newest torch that the wheel takes. Each torch is 2 to 4 GB to
# download and up to 7 GB of disk, which is free again after its turn. The short form is CI's.
WHEEL := dist/stoker-$(shell cat VERSION)-py3-none-manylinux_2_28_$(shell uname -m).whl
wheel-test: wheel
	$(PYTHON) tools/wheel_test.py $(WHEEL) 3.10:numpy-oldest 3.11 3.12 3.13 3.10:torch-oldest 3.13:torch-newest

wheel-test-short: wheel
	$(PYTHON) tools/wheel_test.py $(WHEEL) 3.10:torch-oldest 3.13:torch-newest

# The wheel for aarch64, cross-compiled, and run under qemu-user. Debian's packages:
# gcc-aarch64-linux-gnu libc6-dev-arm64-cross libjpeg62-turbo-dev:arm64 libwebp-dev:arm64
# qemu-user-static, after dpkg --add-architecture arm64.
ARM64 := CC=aarch64-linux-gnu-gcc
wheel-arm64:
	@$(ARM64) bash tools/setup.sh wheel
	@mkdir -p build
	$(ARM64) GOARCH=arm64 CGO_ENABLED=1 go build -tags netgo,osusergo,$$($(ARM64) tools/tags.sh) -ldflags "-s -w $$($(ARM64) tools/tags.sh --static)" -o build/stoker-arm64 ./cmd/stoker
	STOKER_WHEEL_ENGINE="$(CURDIR)/build/stoker-arm64" bash tools/wheel.sh aarch64

# The Go tests as on aarch64, of an engine like the wheel's. They need the packages of
# wheel-arm64, no hardware, and half an hour of four cores. QEMU_PAGESIZE=65536 is a
# kernel with larger pages. Most tools are left out: their tests measure rates, for which
# an emulated processor is too slow, or have a shell start the command.
ARM64_TESTS ?= . ./internal/base/... ./internal/compose/... ./internal/dataset/... ./internal/engine/... ./internal/fill/... ./internal/loader/... ./internal/spec/... ./internal/stage/... ./internal/stream/... ./internal/tool/pack/...
test-arm64:
	@$(ARM64) bash tools/setup.sh wheel
	$(ARM64) GOARCH=arm64 CGO_ENABLED=1 go test -short -vet=off -timeout 90m -exec "'$(CURDIR)/tools/emulate.sh'" -tags netgo,osusergo,$$($(ARM64) tools/tags.sh) -ldflags "$$($(ARM64) tools/tags.sh --static)" $(ARM64_TESTS)

# The kernel's AVX-512 code on a processor without AVX-512: SIMDe's plain C in the place of
# the instructions. It needs Debian's libsimde-dev.
test-avx512:
	@test -e /usr/include/simde/x86/avx512.h || { echo "make test-avx512 needs SIMDe: apt-get install libsimde-dev" >&2; exit 1; }
	CGO_CFLAGS="-O2 -g -Wno-psabi -DSTK_SIMDE" STOKER_KERNEL=avx512 go test -count=1 ./internal/base/kernel ./internal/stage/transform

# Man pages in build/man, made of docs/cli.md.
man:
	go test -count=1 ./cmd/stoker -run '^TestManPages$$' -args -man="$(CURDIR)/build/man"

bench-venvs:
	$(PYTHON) bench/setup.py

bench: engine venv bench-venvs
	@test -n "$(DATA)" || { echo "usage: make bench DATA=folder-of-jpegs"; exit 2; }
	$(VENV)/python -m bench.compare --data "$(DATA)" --out build/bench.json
	$(VENV)/python -m bench.images --data "$(DATA)" --out build/bench-pictures.json

bench-transport: engine venv
	$(VENV)/python -m bench.transport --out build/bench-transport.json

# A user's own dataset under torch's DataLoader and under stoker's.
bench-python: engine venv
	@test -n "$(DATA)" || { echo "usage: make bench-python DATA=folder-of-jpegs"; exit 2; }
	$(PYTHON) bench/setup.py own
	$(VENV)/python -m bench.own --data "$(DATA)" --out build/bench-own.json

bench-startup: engine venv
	@test -n "$(DATA)" || { echo "usage: make bench-startup DATA=folder-of-jpegs"; exit 2; }
	$(VENV)/python -m bench.startup --data "$(DATA)" --out build/bench-startup.json

bench-order: engine venv
	go test -run '^$$' -bench 'At|Open|Draw|Mix|Lengths' ./internal/stage/order
	$(VENV)/python -m bench.resume --out build/bench-resume.json

bench-index: engine venv
	@test -n "$(DATA)" || { echo "usage: make bench-index DATA=folder-of-jpegs"; exit 2; }
	$(VENV)/python -m bench.index --data "$(DATA)" --out build/bench-index.json

# The doctor against jobs of which it is known what is wrong with them; half an
# hour a seed, on a machine that does nothing else. Mounts FUSE, makes cgroups.
doctor-score: engine venv
	@mkdir -p build
	go -C harness build -o ../build/score ./score/cmd
	$(VENV)/python -m bench.score --seeds $${SEEDS:-1} --out build/doctor-score.json

doctor-score-short: engine venv
	STOKER_SCORE_PYTHON="$(CURDIR)/$(VENV)/python" STOKER_SCORE_COMMAND="$(CURDIR)/build/stoker" go -C harness test -count=1 -v -run TestShort ./score

# On a machine with a CUDA device: the tests that `make test` does not collect elsewhere, which fail where there is no
# device; and the benchmark, with a folder of JPEGs in classes if DATA names one. GPU_PYTHON has torch with CUDA.
GPU_PYTHON ?= $(VENV)/python
GPU := PYTHONPATH="$(CURDIR)/python/src:$(CURDIR)" $(GPU_PYTHON)
gpu-test: engine venv
	$(GPU) tools/gpu_tests.py build/gpu-tests.json

gpu-bench: engine venv
	$(GPU) -m bench.gpu $(if $(DATA),--data "$$(realpath -m -- "$(DATA)")") --out build/bench-gpu.json

# One folder, build/gpu, with all that such a machine needs if it has neither Go nor a network: a static engine, the
# package, tests, benchmark and photographs, and torchcodec and Kornia for the Python PYTHON_OF_GPU. There,
# build/gpu/tools/gpu.sh OUT runs both, with the Python, torch and pytest that it has.
PYTHON_OF_GPU ?= 3.12
WHEELS_OF_GPU := build/gpu-wheels/$(PYTHON_OF_GPU)
BUNDLED := VERSION python/src/stoker python/tests python/frameworks/ranks.py python/frameworks/watched.py python/pyproject.toml bench/__init__.py bench/covers.py bench/gpu.py examples/recipes/common.py examples/recipes/train.py tools/gpu.sh tools/gpu_tests.py tools/gpu_wheels.py testdata/photos
gpu-bundle: engine
	$(PYTHON) tools/static.py build/stoker $$(uname -m)
	@$(PYTHON) tools/gpu_wheels.py get $(PYTHON_OF_GPU) $$(uname -m) $(WHEELS_OF_GPU)
	@rm -rf build/gpu && mkdir -p build/gpu/wheels
	@tar -cf - --exclude=__pycache__ --exclude=_engine $(BUNDLED) | tar -xf - -C build/gpu
	@cp build/stoker build/gpu/stoker
	@cp $(WHEELS_OF_GPU)/*.tar.xz build/gpu/wheels
	@git describe --always --dirty --abbrev=40 >build/gpu/commit 2>/dev/null || echo unknown >build/gpu/commit
	@size=$$(du -sk build/gpu | cut -f1); echo "build/gpu: $$((size / 1024)) MiB"; test $$size -le 49152

# Puts the figures of bench/results into the docs; a test holds them together.
figures:
	$(PYTHON) -m bench.figures --write

# Needs jpegtran (Debian's libjpeg-turbo-progs), and for FFCV what bench/setup.py says.
bench-formats: engine venv bench-venvs
	@test -n "$(DATA)" || { echo "usage: make bench-formats DATA=folder-of-jpegs"; exit 2; }
	$(VENV)/python -m bench.formats --data "$(DATA)" --out build/bench-formats.json

# What entry points of JPEGs save and cost; ten minutes on a machine that does nothing else.
bench-entries: engine venv
	@test -n "$(DATA)" || { echo "usage: make bench-entries DATA=folder-of-jpegs"; exit 2; }
	$(VENV)/python -m bench.entries --data "$(DATA)" --copies 16 --out build/bench-entries.json

# Decoding alone; five minutes on a machine that does nothing else.
bench-jpeg: venv
	@test -n "$(DATA)" || { echo "usage: make bench-jpeg DATA=folder-of-jpegs"; exit 2; }
	$(PYTHON) bench/setup.py jpeg tf dali
	$(VENV)/python -m bench.jpeg --data "$(DATA)" --out build/bench-jpeg.json

# Decoding of PNG, WebP and TIFF, and inflating; six minutes on a machine that does nothing else.
bench-pictures: venv
	@test -n "$(DATA)" || { echo "usage: make bench-pictures DATA=folder-of-jpegs"; exit 2; }
	$(PYTHON) bench/setup.py images
	$(VENV)/python -m bench.images --data "$(DATA)" --out build/bench-pictures.json

# What augmentations add to a picture, and whole recipes; forty minutes on a machine that does nothing else.
bench-augment: engine venv
	@test -n "$(DATA)" || { echo "usage: make bench-augment DATA=folder-of-jpegs"; exit 2; }
	$(PYTHON) bench/setup.py own dali kornia
	$(VENV)/python -m bench.augment --data "$(DATA)" --out build/bench-augment.json

# Whole training recipes beside torchvision's own pipeline; fifteen minutes on a machine that does nothing else.
bench-recipes: engine venv
	@test -n "$(DATA)" || { echo "usage: make bench-recipes DATA=folder-of-jpegs"; exit 2; }
	$(PYTHON) bench/setup.py timm
	$(VENV)/python -m bench.recipes --data "$(DATA)" --out build/bench-recipes.json

# Each operation beside torchvision's, with the same choices, on the photographs of testdata.
augment-sheet: engine venv
	$(VENV)/python -m bench.sheet --out docs/guides/augmentations.jpg

clean:
	rm -rf build dist .venv .venv-bench .venv-frameworks python/src/stoker/_engine
