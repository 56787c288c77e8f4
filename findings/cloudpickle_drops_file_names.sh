#!/usr/bin/env bash
# cloudpickle 3.1.3 replaces the file name of all pickled code by <dynamic-code>. 3.1.2 keeps it. So the traceback of a
# function that crossed to another process has no file and no line of source. Seen for a function of job.py, unpickled:
#
#   3.1.2: File "job.py", line 2, in halve, and the line of source
#   3.1.3: File "<dynamic-code>", line 2, in halve
#
# The script fails when this changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/job.py" <<'PYTHON'
def halve(number):
    return 12 // number  # the line that fails


if __name__ == "__main__":
    import pickle
    import traceback

    import cloudpickle

    print("cloudpickle", cloudpickle.__version__)
    try:
        pickle.loads(cloudpickle.dumps(halve))(0)
    except ZeroDivisionError:
        print(traceback.format_exc())
PYTHON
for version in 3.1.2 3.1.3; do
    python3 -m venv --clear "$folder/venv"
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "cloudpickle==$version"
    (cd "$folder" && venv/bin/python job.py) | tee "$folder/$version.txt"
done
grep -q 'job.py", line 2, in halve' "$folder/3.1.2.txt"
grep -q 'the line that fails' "$folder/3.1.2.txt"
grep -q 'File "<dynamic-code>", line 2, in halve' "$folder/3.1.3.txt"
! grep -q 'the line that fails' "$folder/3.1.3.txt"
