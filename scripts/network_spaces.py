"""Two network namespaces as two machines, joined by a link that `tc` shapes; for the scripts of several processes. Needs root and iproute2."""

import os
import subprocess


class NetworkSpaces:
    """While it is entered the namespaces are there. Throws OSError or CalledProcessError where they cannot be made."""

    def __init__(self, rate, delay=None, loss=None):
        self.rate, self.delay, self.loss = rate, delay, loss  # as tc writes them: 1gbit, 1ms, 1%
        self.shape = None  # in words, once it is entered
        self.names = [f"mnemo{os.getpid()}-{i}" for i in range(2)]
        self.links = [f"mn{os.getpid()}{'ab'[i]}"[-14:] for i in range(2)]

    def __enter__(self):
        def ip(*words):
            subprocess.run(["ip", *words], check=True, capture_output=True)

        try:
            for name in self.names:
                ip("netns", "add", name)
            ip("link", "add", self.links[0], "type", "veth", "peer", "name", self.links[1])
            for i in range(2):
                ip("link", "set", self.links[i], "netns", self.names[i])
                ip("-n", self.names[i], "addr", "add", f"{self.address(i)}/24", "dev", self.links[i])
                for device in ("lo", self.links[i]):
                    ip("-n", self.names[i], "link", "set", device, "up")
                self.shape = self.make_link(i)
        except BaseException:
            self.__exit__()
            raise
        return self

    def make_link(self, i):
        """netem does all; a kernel without it may have tbf, which limits the rate alone."""
        add = [*self.prefix(i), "tc", "qdisc", "add", "dev", self.links[i], "root"]
        more = [word for name, value in (("delay", self.delay), ("loss", self.loss)) if value for word in (name, value)]
        if subprocess.run([*add, "netem", "rate", self.rate, *more, "limit", "100000"], capture_output=True).returncode == 0:
            return " ".join(["rate", self.rate, *more])
        subprocess.run([*add, "tbf", "rate", self.rate, "burst", "256kb", "latency", "100ms"], check=True, capture_output=True)
        return f"rate {self.rate}" + (" (no delay and no loss: this kernel has no netem)" if more else "")

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def prefix(self, i):
        """Before a command line that runs on machine i."""
        return ["ip", "netns", "exec", self.names[i]]

    def address(self, i):
        return f"10.77.0.{i + 1}"

    def variables(self, i):
        """Where ranks of machine i meet, and by which interface."""
        return {"MASTER_ADDR": self.address(0), "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": self.links[i]}

    def bits_per_second(self):
        units = {"gbit": 1e9, "mbit": 1e6}
        return float(self.rate[:-4]) * units[self.rate[-4:]]
