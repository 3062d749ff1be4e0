//! Writes to the end of a file.

use super::*;

/// The kernel appends at the size that it knew before another client made the file longer.
#[test]
fn an_append_goes_behind_what_another_client_has_appended() {
    let [one, two] = clients();
    let (ino, file) = one.create(b"f");
    one.append(file, 0, vec![1; 100]);
    one.close(file).unwrap();
    let seen = two.find(b"f").unwrap();
    two.close(two.open(seen)).unwrap();
    assert_eq!(one.told.0.borrow()[..], [0; 0]);

    let file = one.open(ino);
    one.append(file, 100, vec![2; 50]);
    one.close(file).unwrap();
    let file = two.open(seen);
    two.told.0.borrow_mut().clear();
    two.append(file, 100, vec![3; 30]);
    assert_eq!(two.told.0.borrow()[..], [seen], "pages have it elsewhere");
    // Neither of these is sent before the other: the first one is the end of the file.
    two.append(file, 180, vec![4; 20]);
    assert_eq!(two.told.0.borrow()[..], [seen]);
    two.close(file).unwrap();
    let expected = [&[1; 100][..], &[2; 50], &[3; 30], &[4; 20]].concat();
    assert_eq!(&two.read_anew(seen)[..], &expected[..]);
    assert_eq!(&one.read_anew(ino)[..], &expected[..]);
}

/// No kernel knows of what was written elsewhere while the file is open.
#[test]
fn an_append_asks_for_the_size_once_the_attributes_are_too_old() {
    let [one, mut two] = clients();
    two.options().attributes = AttributeTimes::NONE;
    let (ino, file) = one.create(b"f");
    let seen = two.find(b"f").unwrap();
    let other = two.open(seen);
    one.write(file, 0, vec![1; 100]);
    one.close(file).unwrap();
    two.append(other, 0, vec![2; 10]);
    two.close(other).unwrap();
    let expected = [&[1; 100][..], &[2; 10]].concat();
    assert_eq!(&one.read_anew(ino)[..], &expected[..]);
}

/// The kernel sends the parts of a large write with O_DIRECT at once. Each asks for the size, as the
/// attributes are too old, and the replies may come in another order.
#[test]
fn the_parts_of_an_append_stay_in_order() {
    let mut fixture = fixture();
    fixture.options().attributes = AttributeTimes::NONE;
    let (ino, file) = fixture.create(b"f");
    let mode = WriteMode {
        append: true,
        ..WriteMode::default()
    };
    let part = |n: u8| fixture.core.write(file, 0, Bytes::from(vec![n; 10]), mode);
    fixture.run(async {
        let mut first = Box::pin(part(1));
        let mut second = Box::pin(part(2));
        let mut third = Box::pin(part(3));
        assert!(poll!(&mut first).is_pending());
        assert!(poll!(&mut second).is_pending());
        // However long the first takes, the last waits for it.
        for _ in 0..100 {
            assert!(poll!(&mut third).is_pending());
            turn().await;
        }
        // A killed program does not keep its turn.
        drop(second);
        assert_eq!(join(third, first).await, (Ok(10), Ok(10)));
    });
    fixture.close(file).unwrap();
    assert_eq!(
        &fixture.read_anew(ino)[..],
        &[[1; 10], [3; 10]].concat()[..]
    );
}

/// An append that ends modifies nothing at the server by that.
#[test]
fn an_append_that_ends_lets_nobody_ask_for_the_size_again() {
    let backend = MemoryFs::simulated(64 << 20, 1, Clock::simulated());
    let (runtime, server, mount) = serve(Arc::new(backend));
    let one = client(&runtime, &server, &mount, 1);
    let two = client(&runtime, &server, &mount, 2);
    let (ino, file) = one.create(b"f");
    let other = two.open(two.find(b"f").unwrap());
    two.write(other, 0, vec![1; 100]);
    two.close(other).unwrap();
    // The server's clock stands still: while this client modifies the file, the order is not known.
    let node = one.core.node(ino).unwrap();
    node.attributes.borrow_mut().expire();
    let mode = WriteMode {
        append: true,
        ..WriteMode::default()
    };
    let append = || {
        let core = Rc::clone(&one.core);
        async move { core.write(file, 0, Bytes::from(vec![2; 10]), mode).await }
    };
    one.run(async {
        let change = one.core.change(&node);
        // In a task of its own, it goes on only when it is woken.
        let mut first = Box::pin(one.core.to_the_end(append()));
        let mut second = Box::pin(append());
        let mut wait = async || {
            for _ in 0..50 {
                assert!(poll!(&mut first).is_pending());
                turn().await;
            }
            one.calls::<nfs::Getattr>()
        };
        let asked = wait().await;
        assert!(poll!(&mut second).is_pending());
        drop(second);
        assert_eq!(wait().await, asked);
        drop(change);
        assert_eq!(first.await, Ok(10));
    });
    one.close(file).unwrap();
    assert_eq!(one.read_anew(ino).len(), 110);
}
