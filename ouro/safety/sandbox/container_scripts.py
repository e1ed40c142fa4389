"""The scripts that run in a container: with the shell of the image, whichever it is."""

from __future__ import annotations

OWN_PROCESSES = 16
"""Processes of a container beside those of its commands."""
ATTENDED = {"TERM": "xterm-256color", "GIT_TERMINAL_PROMPT": "1", "GIT_EDITOR": "vi"}
"""What is different for a command with a terminal."""
IDLE = 'trap "exit 0" TERM; while :; do sleep 86400 & wait $!; done'
"""The first process: it waits, and collects processes that have lost their parent."""
_LOOK = """
look() {
    pids= parents=
    for place in /proc/[0-9]*; do
        { read -r about <"$place/stat"; } 2>/dev/null || continue
        set -- ${about##*) }
        [ "${23}" = "$tag" ] || continue
        case $1 in Z|X) ;; *) pids="$pids ${place#/proc/}"; parents="$parents $2" ;; esac
    done
}
"""
"""Finds the living processes of a command by its tag, which is their limit of resident memory."""
SIGNAL = (
    f'tag=$1 number=$2\n{_LOOK}\nfor try in 1 2; do look; kill -"$number" $pids 2>/dev/null; done'
)
"""Signals the processes of a command. Twice: one that was started during the first look has the
tag, too.
"""
RUN = f"""
tag=$1; shift
{_LOOK}
trap : INT QUIT TERM HUP
exec 2>/dev/null
(exec "$@" 2>&1); code=$?
try=0
while look; [ -n "$pids" ] && [ $try -lt 10 ]; do try=$((try + 1)); sleep 0.03; done
[ -z "$pids" ] && exit $code
count=0
for parent in $parents; do case "$pids " in *" $parent "*) ;; *) count=$((count + 1)) ;; esac; done
echo "$tag $count" >>/tmp/left_running
kill -15 $pids
try=0
while look; [ -n "$pids" ] && [ $try -lt 10 ]; do try=$((try + 1)); sleep 0.03; done
for try in 1 2; do look; kill -9 $pids; done
exit $code
"""
"""Runs a command, gives what it left 0.3 s to finish, records how many are left, and ends them. Both
outputs are one: docker would mix their order.
"""
VERIFIED = "confined"
VERIFY = """
uid=$1 network=$2 text=$3 seen=0; shift 3
fail() { echo "$1"; exit 1; }
while read -r name value rest; do
    case $name in
        Uid:) [ "$value" = "$uid" ] || fail "commands run as user $value, not $uid"; seen=$((seen + 1)) ;;
        CapEff:|CapBnd:)
            case $value in *[1-9a-f]*) fail "commands have capabilities ($value)" ;; esac
            seen=$((seen + 1)) ;;
        NoNewPrivs:) [ "$value" = 1 ] || fail "commands can get more rights"; seen=$((seen + 1)) ;;
        Seccomp:) [ "$value" = 2 ] || fail "no seccomp filter is set"; seen=$((seen + 1)) ;;
    esac
done </proc/self/status
[ $seen = 5 ] || fail "its /proc does not show the rights of a process"
read -r line </run/ouro/proof
[ "$line" = "$text" ] || fail "it does not share the folders of this machine"
if [ "$network" = none ]; then
    while read -r device route rest; do
        [ "$device" = Iface ] || fail "it has a network ($device)"
    done </proc/net/route
fi
for place in /run/docker.sock /var/run/docker.sock /run/podman/podman.sock; do
    [ -S $place ] && fail "the socket of an engine is in it ($place)"
done
can_write() {
    if [ -d "$1" ]; then
        (: >"$1/.ouro_probe") 2>/dev/null && rm -f "$1/.ouro_probe"
    else
        (: >>"$1") 2>/dev/null
    fi
}
for place in / /etc "$@"; do
    can_write "$place" && fail "$place can be changed"
done
echo confined
"""
"""Prints what is wrong with the container in which it runs."""
