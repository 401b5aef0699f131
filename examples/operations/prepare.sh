#!/bin/sh
# Makes what the worked catalogue needs, in a folder: a bare git repository with playbooks, and the documents.
#
#     sh examples/operations/prepare.sh /tmp/operations
#     taskyard apply -f /tmp/operations/catalogue.yaml
#
# Run again, it commits what has changed in `site` since. It needs git and a POSIX shell.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?name a folder: sh prepare.sh FOLDER}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

commit() {
    git -C "$work" add -A
    git -C "$work" diff --cached --quiet ||
        git -C "$work" -c user.name=operations -c user.email=operations@example.com commit -q -m "$1"
}

if [ -d "$folder/site.git" ]; then
    git clone -q "$folder/site.git" "$work"
    cp -R "$here/site/." "$work"
    commit "Change the site"
    git -C "$work" push -q origin HEAD
else
    git init -q -b main "$work"
    cp -R "$here/site/." "$work"
    commit "Begin the site"
    git clone -q --bare "$work" "$folder/site.git"
fi
sed "s|/tmp/operations|$folder|g" "$here/catalogue.yaml" > "$folder/catalogue.yaml"
echo "$folder/catalogue.yaml"
