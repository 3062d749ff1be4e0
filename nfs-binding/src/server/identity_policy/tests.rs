//! Table-driven tests that map origin, claimed identity and export to the effective identity.

use onc_rpc::AuthSys;

use super::*;

const ROOT: u32 = 0;
const ANN: u32 = 1000;
const BOB: u32 = 1001;
const NOBODY: (u32, u32) = (100, 200);

fn claim(uid: u32, gid: u32, gids: &[u32]) -> Credential {
    Credential::Sys(AuthSys {
        uid,
        gid,
        gids: gids.iter().copied().collect(),
        ..AuthSys::default()
    })
}

fn options(text: &str) -> ExportOptions {
    let options = ExportOptions::for_server(true)
        .with("anonuid=100,anongid=200")
        .unwrap();
    options.with(text).unwrap()
}

fn policy(own: u32) -> (IdentityPolicy, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (passwd, group) = (dir.path().join("passwd"), dir.path().join("group"));
    std::fs::write(&passwd, "ann:x:1000:1000::/:\nbob:x:1001:100::/:\n").unwrap();
    std::fs::write(&group, "adm:x:4:ann\nwheel:x:0:bob\n").unwrap();
    let users = Users::new(passwd, group);
    (
        IdentityPolicy {
            users,
            ..IdentityPolicy::of_user(own)
        },
        dir,
    )
}

fn here(user: Option<u32>) -> Peer {
    Peer {
        address: "127.0.0.1:40000".parse().unwrap(),
        origin: PeerOrigin::ThisHost { user },
    }
}

fn there(origin: PeerOrigin, port: u16) -> Peer {
    Peer {
        address: SocketAddr::from(([192, 0, 2, 1], port)),
        origin,
    }
}

/// User, group and supplementary groups.
type Seen = (u32, u32, Vec<u32>);

fn seen(policy: &IdentityPolicy, peer: Peer, credential: &Credential, text: &str) -> Seen {
    let caller = policy.caller(peer, credential, &options(text)).unwrap();
    (caller.uid, caller.gid, caller.gids.to_vec())
}

fn nobody() -> Seen {
    (NOBODY.0, NOBODY.1, vec![])
}

#[test]
fn a_user_of_this_host_is_itself_whatever_it_claims() {
    let (policy, _dir) = policy(ROOT);
    let ann = here(Some(ANN));
    for text in ["", "root_squash", "no_root_squash"] {
        assert_eq!(
            seen(&policy, ann, &claim(ANN, 1000, &[4]), text),
            (ANN, 1000, vec![4])
        );
        // The user claims another identity, for example the superuser.
        for other in [ROOT, BOB, 65534, u32::MAX] {
            assert_eq!(
                seen(&policy, ann, &claim(other, 1000, &[4]), text),
                nobody()
            );
        }
        assert_eq!(seen(&policy, ann, &Credential::None, text), nobody());
    }
    assert_eq!(
        seen(&policy, ann, &claim(ANN, 1000, &[]), "all_squash"),
        nobody()
    );
}

#[test]
fn a_user_of_this_host_has_only_groups_of_its_own() {
    let (policy, _dir) = policy(ROOT);
    let ann = here(Some(ANN));
    // The user claims powerful groups: shadow, disk, docker.
    let greedy = claim(ANN, 6, &[0, 4, 42, 999]);
    assert_eq!(
        seen(&policy, ann, &greedy, "no_root_squash"),
        (ANN, 1000, vec![4])
    );
    // A supplementary group can become the primary one, and none can be left out.
    assert_eq!(
        seen(&policy, ann, &claim(ANN, 4, &[]), ""),
        (ANN, 4, vec![1000])
    );
    let bob = here(Some(BOB));
    let wheel = claim(BOB, 0, &[0]);
    assert_eq!(
        seen(&policy, bob, &wheel, "no_root_squash"),
        (BOB, 0, vec![100])
    );
    assert_eq!(
        seen(&policy, bob, &wheel, "root_squash"),
        (BOB, 200, vec![100])
    );
    // A user who is in neither file.
    let stray = claim(4711, 4711, &[4711]);
    assert_eq!(
        seen(&policy, here(Some(4711)), &stray, ""),
        (4711, 200, vec![])
    );
}

#[test]
fn root_of_this_host_speaks_for_everybody_and_is_squashed_with_all_only() {
    let (policy, _dir) = policy(ROOT);
    let root = here(Some(ROOT));
    for text in ["", "root_squash", "no_root_squash"] {
        assert_eq!(
            seen(&policy, root, &claim(0, 0, &[0, 4]), text),
            (0, 0, vec![0, 4])
        );
        assert_eq!(
            seen(&policy, root, &claim(ANN, 6, &[42]), text),
            (ANN, 6, vec![42])
        );
    }
    assert_eq!(
        seen(&policy, root, &claim(0, 0, &[]), "all_squash"),
        nobody()
    );
}

#[test]
fn a_peer_of_unknown_user_is_nobody() {
    let (policy, _dir) = policy(ROOT);
    for uid in [ROOT, ANN, 65534] {
        let who = seen(
            &policy,
            here(None),
            &claim(uid, 0, &[0, 4]),
            "no_root_squash",
        );
        assert_eq!(who, nobody());
    }
}

#[test]
fn a_named_user_speaks_for_others_and_as_root_for_whom_the_export_says() {
    let (policy, _dir) = policy(ROOT);
    let policy = policy.with_trusted_user(BOB);
    let gateway = here(Some(BOB));
    assert_eq!(
        seen(&policy, gateway, &claim(ANN, 6, &[42]), ""),
        (ANN, 6, vec![42])
    );
    assert_eq!(seen(&policy, gateway, &claim(0, 0, &[]), ""), nobody());
    assert_eq!(
        seen(&policy, gateway, &claim(0, 0, &[]), "no_root_squash"),
        (0, 0, vec![])
    );
    assert_eq!(
        seen(&policy, here(Some(ANN)), &claim(BOB, 100, &[]), ""),
        nobody()
    );
}

#[test]
fn other_hosts_are_what_the_export_says() {
    let (policy, _dir) = policy(ROOT);
    for peer in [
        there(PeerOrigin::OverTcp, 700),
        there(PeerOrigin::OverRdma, 700),
        there(PeerOrigin::OverRdma, 40000),
    ] {
        assert_eq!(
            seen(&policy, peer, &claim(ANN, 6, &[42]), ""),
            (ANN, 6, vec![42])
        );
        assert_eq!(
            seen(&policy, peer, &claim(0, 0, &[0]), ""),
            (100, 200, vec![200])
        );
        assert_eq!(
            seen(&policy, peer, &claim(0, 0, &[0]), "no_root_squash"),
            (0, 0, vec![0])
        );
    }
}

#[test]
fn secure_exports_are_for_reserved_ports_of_other_hosts_over_tcp() {
    let (policy, _dir) = policy(ROOT);
    let root = claim(0, 0, &[]);
    let admitted = |peer, text| policy.caller(peer, &root, &options(text)).map(drop);
    let tcp = |port| there(PeerOrigin::OverTcp, port);
    for text in ["", "secure", "insecure,secure"] {
        assert_eq!(admitted(tcp(1023), text), Ok(()));
        assert_eq!(admitted(tcp(1024), text), Err(Status::PERM));
        assert_eq!(admitted(tcp(40000), text), Err(Status::PERM));
    }
    assert_eq!(admitted(tcp(40000), "insecure"), Ok(()));
    assert_eq!(
        admitted(there(PeerOrigin::OverRdma, 40000), "secure"),
        Ok(())
    );
    // For a local peer, the kernel's information replaces the port check.
    assert_eq!(admitted(here(Some(ANN)), "secure"), Ok(()));
}

#[test]
fn a_server_of_an_ordinary_user_is_for_that_user_and_root_of_this_host() {
    let (policy, _dir) = policy(ANN);
    let policy = policy.with_trusted_user(77);
    let caller = |user, uid| {
        let options = ExportOptions::for_server(false);
        let caller = policy.caller(here(user), &claim(uid, uid, &[]), &options);
        caller.map(|caller| caller.uid)
    };
    assert_eq!(caller(Some(ANN), ANN), Ok(ANN));
    assert_eq!(caller(Some(ROOT), ROOT), Ok(ROOT));
    assert_eq!(caller(Some(77), BOB), Ok(BOB));
    assert_eq!(caller(Some(BOB), BOB), Err(Status::ACCES));
    assert_eq!(caller(Some(BOB), ANN), Err(Status::ACCES));
    assert_eq!(caller(None, ANN), Err(Status::ACCES));
    let options = ExportOptions::for_server(false);
    let other_host = there(PeerOrigin::OverTcp, 40000);
    assert_eq!(policy.admit(other_host, &options), Ok(()));
}

/// Regression test: a user of this host passed directories with MNT that it could not pass otherwise.
#[test]
fn mnt_looks_up_as_a_user_of_this_host_but_as_root_for_clients_of_many_users() {
    let (policy, _dir) = policy(ROOT);
    let mounter = |peer, text: &str| {
        let who = policy.mounter(peer, &options(text)).unwrap();
        (who.uid, who.gid, who.gids.to_vec())
    };
    let superuser = (0, 0, vec![]);
    assert_eq!(mounter(here(Some(ANN)), ""), (ANN, 1000, vec![4]));
    assert_eq!(mounter(here(Some(ANN)), "all_squash"), nobody());
    assert_eq!(mounter(here(None), ""), nobody());
    assert_eq!(mounter(here(Some(ROOT)), ""), superuser);
    assert_eq!(mounter(there(PeerOrigin::OverTcp, 700), ""), superuser);
    let port = there(PeerOrigin::OverTcp, 1024);
    assert_eq!(policy.mounter(port, &options("")), Err(Status::PERM));
}
