#!/bin/sh
# Prints the devices of a request whenever their metadata change. Usage: read.sh CLAIM REQUEST
set -eu
folder=/var/run/kubernetes.io/dra-device-attributes/resourceclaims/$1/$2
before=
while :; do
  for file in "$folder"/*-metadata.json; do
    now=$(head -n 1 "$file")
    [ "$now" = "$before" ] || echo "$now"
    before=$now
  done
  sleep 1
done
