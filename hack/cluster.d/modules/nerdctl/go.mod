// nerdctl 2.2.1, built for the tests without a cluster, with its own list of dependencies.
module claimfs.dev/hack/nerdctl

go 1.26.0

require github.com/containerd/nerdctl/v2 v2.2.1
