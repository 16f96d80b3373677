#!/bin/sh
# A gate for CI: is this version slower than a base? Usage: ci.sh BASE NEW
#   BASE  the result directory of the version to compare to; measured first where it does not exist
#   NEW   the result directory of this version, made anew
# Exit code: 0 no regression above $ALLOWED %, 1 a regression, 5 inconclusive (neither shown nor excluded), others: an error.
# NEW is offered the same frames/s as BASE: shares of a maximum would be other rates in each campaign.
# On a host that has other work, measure both versions in turns in one campaign instead: netbench run --against.
set -eu
ALLOWED=${ALLOWED:-3}
base=${1:?usage: $0 BASE NEW} new=${2:?usage: $0 BASE NEW}
here=$(dirname "$0")
[ -e "$base" ] || netbench run "$here/topology.yaml" "$here/profile.yaml" -o "$base"
netbench run "$here/topology.yaml" "$here/profile.yaml" --loads-from "$base" -o "$new"
netbench compare "$base" "$new" --fail-on-regression "$ALLOWED" \
    --format junit -o "$new/compare.xml" --html "$new/compare.html"
