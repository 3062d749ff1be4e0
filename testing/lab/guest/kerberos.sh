# Kerberos in one guest: a key distribution center, and what Linux's client and server need of it.
# shellcheck shell=sh

REALM=LAB
DOMAIN=lab
KEYTAB=/etc/krb5.keytab

# kdc_up: the key distribution center, and the keys of both ends. A ticket is for the server's name, so that this name
# has to lead to the gateway that a client is to use: `server` to the one at the client, `far` to the one at the server.
kdc_up() {
    hostname client.$DOMAIN
    printf '%s\n' "127.0.0.1 server.$DOMAIN localhost" "$NEAR client.$DOMAIN" "$FAR far.$DOMAIN" >/etc/hosts
    cat >/etc/krb5.conf <<END
[libdefaults]
default_realm = $REALM
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
[realms]
$REALM = {
kdc = 127.0.0.1
}
[domain_realm]
.$DOMAIN = $REALM
END
    mkdir -p /etc/krb5kdc /var/lib/krb5kdc
    printf '%s\n' '[realms]' "$REALM = {" 'supported_enctypes = aes256-cts-hmac-sha1-96:normal' '}' >/etc/krb5kdc/kdc.conf
    kdb5_util create -s -r $REALM -P master
    for _host in client server far; do
        kadmin.local -q "addprinc -randkey nfs/$_host.$DOMAIN"
        kadmin.local -q "ktadd -k $KEYTAB nfs/$_host.$DOMAIN"
    done
    krb5kdc
    # It answers.
    until_true 10 kinit -k -t $KEYTAB "nfs/client.$DOMAIN"
    kdestroy
}

# gss_up: after nfsd_up. Root of the client, whose ticket is that of its host, is root at the server.
gss_up() {
    cat >/etc/idmapd.conf <<END
[General]
Domain = $DOMAIN
Local-Realms = $REALM
[Mapping]
Nobody-Group = nogroup
[Translation]
Method = nsswitch
GSS-Methods = static,nsswitch
[Static]
nfs/client.$DOMAIN@$REALM = root
END
    echo '/export *(rw,no_root_squash,no_subtree_check,insecure,sync,fsid=1,sec=krb5:krb5i:krb5p)' >/etc/exports
    exportfs -ra
    rpc.idmapd -S -p /var/lib/nfs/rpc_pipefs
    rpc.svcgssd
    rpc.gssd -p /var/lib/nfs/rpc_pipefs
    until_true 10 pgrep rpc.gssd
    until_true 10 pgrep rpc.svcgssd
    until_true 10 pgrep rpc.idmapd
}
