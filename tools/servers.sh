#!/usr/bin/env bash
# The servers that tests talk to, built or installed into build/servers, once:
#
#	versitygw           S3: Go module, as tools/servers/go.mod pins it
#	fake-gcs-server     Google Cloud Storage: Go module, likewise
#	azurite             Azure Blob Storage: npm
#	nginx               HTTP: the system's, or Debian's package, unpacked here
#	moto                STS and other services of AWS: pip, in an environment of its own
#	hub                 huggingface_hub and datasets, clients of the Hub: pip, likewise
#
#	servers.sh          all of them
#	servers.sh --short  versitygw and nginx, which `make test` needs
#	servers.sh NAME...  these
#
# Nothing is installed on the system. What this user may not install, or what the system
# lacks for it, is named in a line with the way to get it; the script goes on, and the
# tests that need it are skipped. It may be called several times at once.
set -euo pipefail
cd "$(dirname "$0")/.."
azurite=azurite@3.37.0
moto="moto[server]==5.2.5"
hub="huggingface_hub==2.4.0 datasets==5.2.0"

into=build/servers
mkdir -p $into
case ${1-} in
"") set -- versitygw nginx fake-gcs-server azurite moto hub ;;
--short) set -- versitygw nginx ;;
esac

# refused NAME WHY: says why it is not here.
refused() { echo "no $1 for the tests, which are skipped: $2"; }

# quietly COMMAND...: runs it; what it prints is shown if it fails.
quietly() {
	local log=$into/log
	"$@" >$log 2>&1 || {
		tail -20 $log
		echo "servers.sh: failed: $*"
		exit 1
	}
}

# of NAME is what its stamp says once it is here.
of() {
	case $1 in
	versitygw | fake-gcs-server) cat tools/servers/go.mod tools/servers/go.sum ;;
	azurite) echo "$azurite" ;;
	moto) echo "$moto" ;;
	hub) echo "$hub" ;;
	nginx) echo nginx ;;
	*)
		echo "servers.sh: unknown server $1; it knows versitygw, fake-gcs-server, azurite, nginx, moto and hub" >&2
		exit 2
		;;
	esac
}

# here NAME: whether it is here already, in this version. The links lead elsewhere.
here() {
	of "$1" | cmp -s - "$into/$1.stamp" || return 1
	case $1 in
	azurite) [ -e $into/npm/node_modules/azurite ] ;;
	moto | hub) [ -x "$into/$1/bin/python" ] ;;
	*) [ -x "$into/$1" ] ;;
	esac
}

# Without C, it builds where there is no compiler. The tags are those of the engine, with which it shares packages.
build() {
	if ! command -v go >/dev/null; then refused "$1" "Go is missing"; return 1; fi
	echo "building $1 for the tests: about a minute of two cores"
	GOFLAGS="-buildvcs=false -tags=netgo,osusergo" CGO_ENABLED=0 quietly go -C tools/servers build -ldflags '-s -w' -o "../../$into/$1.new" "$2"
	mv "$into/$1.new" "$into/$1"
}

# venv NAME REQUIREMENT...
venv() {
	local python=${PYTHON:-python3} at=$into/$1
	if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
		refused "$1" "$python makes no virtual environments (Debian: apt-get install python3-venv)"
		return 1
	fi
	rm -rf "$at"
	echo "installing ${*:2} for the tests"
	quietly "$python" -m venv "$at"
	quietly env -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT -u PIP_USER "$at/bin/python" -m pip install -q --no-compile --disable-pip-version-check "${@:2}"
}

make_versitygw() { build versitygw github.com/versity/versitygw/cmd/versitygw; }
make_fake-gcs-server() { build fake-gcs-server github.com/fsouza/fake-gcs-server; }
make_moto() { venv moto "$moto"; }
make_hub() {
	read -ra packages <<<"$hub"
	venv hub "${packages[@]}"
}

make_azurite() {
	if ! command -v npm >/dev/null; then refused azurite "npm is missing (Debian: apt-get install npm)"; return 1; fi
	echo "installing azurite for the tests"
	rm -rf $into/npm
	mkdir $into/npm
	quietly npm install --no-audit --no-fund --loglevel error --prefix $into/npm "$azurite"
}

# The package of Debian and Ubuntu with the program is nginx or, in older versions,
# nginx-light. Anybody may download it.
make_nginx() {
	local found at=$into/nginx-unpacked
	if found=$(PATH=$PATH:/usr/local/sbin:/usr/sbin command -v nginx); then
		ln -sfn "$found" $into/nginx
		return
	fi
	if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
		refused nginx "install it with the system's package manager"
		return 1
	fi
	rm -rf $at
	mkdir $at
	(
		cd $at
		apt-get download -q nginx nginx-light || { [ "$(id -u)" = 0 ] && apt-get update -q && apt-get download -q nginx nginx-light; }
	) >$into/log 2>&1 || true
	for package in "$at"/*.deb; do
		[ ! -e "$package" ] || quietly dpkg-deb -x "$package" $at
	done
	# Libraries that it needs are packages of their own, which most systems have.
	if [ ! -x $at/usr/sbin/nginx ] || ldd $at/usr/sbin/nginx | grep -q 'not found'; then
		local sudo=
		[ "$(id -u)" = 0 ] || sudo="sudo "
		refused nginx "its package cannot be unpacked and run here (${sudo}apt-get install nginx-light)"
		return 1
	fi
	ln -sfn nginx-unpacked/usr/sbin/nginx $into/nginx
}

for name in "$@"; do
	of "$name" >/dev/null
done
missing=()
for name in "$@"; do
	here "$name" || missing+=("$name")
done
[ ${#missing[@]} -gt 0 ] || exit 0
exec 9>$into/lock
flock 9
for name in "${missing[@]}"; do
	! here "$name" || continue # another call has made it
	rm -f "$into/$name.stamp"
	if "make_$name"; then
		of "$name" >"$into/$name.stamp"
	fi
done
