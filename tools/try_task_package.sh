#!/usr/bin/env bash
# Install examples/task_package into a folder of its own, without a network, and use all that it brings:
# tools/try_task_package.sh BIN FOLDER, where BIN holds python and shoal; `make examples` runs it.
set -euo pipefail
bin=$(realpath "$1")
folder=$2
cd "$(dirname "$0")/.."
rm -rf "$folder"
mkdir -p "$folder"
cp -r examples/task_package "$folder/source"
"$bin/python" -m pip install --quiet --no-deps --no-build-isolation --target "$folder/site" "$folder/source"
cd "$folder"
export PYTHONPATH="$PWD/site${PYTHONPATH:+:$PYTHONPATH}"
shoal() { "$bin/python" -m shoal "$@"; }
shoal tasks | grep thermostat
shoal train thermostat --target-c 20 --backend serial --steps 8000 --name warm
shoal evaluate warm --evenings 5
shoal thermostat curve warm | tail -n 1
shoal report warm
grep -q "degrees off on average" runs/warm/report.html
"$bin/python" -c 'import numpy, shoal; print("action", shoal.load_policy("runs/warm")(numpy.array([9, 9], "f4")))'
shoal train --resume warm --steps 10000
echo "examples/task_package: all that it brings works"
