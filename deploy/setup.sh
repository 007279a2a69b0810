#!/bin/sh
# Makes what a secured network needs, and leaves what is there as it is: an authority, a certificate for each broker, the
# key of tokens, a token for Prometheus.
#
#   setup.sh FOLDER BROKER...
#
# FOLDER/authority   ca.key and tokens.key: whoever has them makes brokers and tokens, so they go nowhere else
# FOLDER/BROKER      what a broker needs, its /etc/meetpoint/keys
# FOLDER/watch       what Prometheus needs
#
# Where it runs as root, MEETPOINT_OWNER and WATCH_OWNER (uid:gid) get the files of brokers and of Prometheus.
set -eu

folder=$1
shift
authority=$folder/authority

[ -e "$authority/ca/ca.key" ] || meetpoint ca init "$authority/ca"
[ -e "$authority/tokens/tokens.key" ] || meetpoint token key "$authority/tokens"

for broker in "$@"; do
    if [ ! -e "$folder/$broker/key.pem" ]; then
        meetpoint ca issue "$authority/ca" "$broker" --address "$broker" --address localhost --out "$folder/$broker"
    fi
    # what changes later, and is read again at SIGHUP
    cp "$authority/ca/revoked.crl" "$authority/tokens/tokens.pub" "$authority/tokens/revoked.txt" "$folder/$broker/"
    [ -z "${MEETPOINT_OWNER:-}" ] || chown -R "$MEETPOINT_OWNER" "$folder/$broker"
done

mkdir -p "$folder/watch"
cp "$authority/ca/ca.pem" "$folder/watch/"
if [ ! -e "$folder/watch/prometheus.token" ]; then
    meetpoint token issue "$authority/tokens" --client prometheus --role observe --expires 1y \
        --out "$folder/watch/prometheus.token"
fi
[ -z "${WATCH_OWNER:-}" ] || chown -R "$WATCH_OWNER" "$folder/watch"
