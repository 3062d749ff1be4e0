# Things to work on.
# shellcheck shell=sh

# make_repository: one of git, in /tmp/repository, with files of all kinds.
make_repository() {
    git init -q /tmp/repository
    exercise make-tree /tmp/repository/tree --count 60
    commit_all
}

# commit_all: commits the tree with a made-up author, as git in the guest has none.
commit_all() {
    git -C /tmp/repository add -A
    git -C /tmp/repository -c user.name=lab -c user.email=lab@guest commit -q -m tree
}
