"""Two network namespaces as two machines, joined by a link that `tc` shapes; for the scripts of several processes. Needs root and iproute2."""

import fcntl
import os
import queue
import random
import struct
import subprocess
import threading
import time


def per_second(rate):
    return float(rate[:-4]) * {"gbit": 1e9, "mbit": 1e6}[rate[-4:]]


class Relay:
    """A link between two TUN devices, carried by threads of this process, for kernels without netem: a packet takes its time
    at the rate, then the delay, and some are lost. The devices may move to namespaces of their own."""

    def __init__(self, names, rate, delay, loss):
        self.rate, self.loss = per_second(rate), float(loss.rstrip("%")) / 100
        self.delay = float(delay.removesuffix("ms")) / 1000
        self.sent = self.lost = 0
        files = [self.open(name) for name in names]
        for source, target in (files, files[::-1]):
            under_way = queue.SimpleQueue()
            for work in ((self.take, source, under_way), (self.deliver, under_way, target)):
                threading.Thread(target=work[0], args=work[1:], daemon=True).start()

    @staticmethod
    def open(name):
        device = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))  # TUNSETIFF: IFF_TUN | IFF_NO_PI
        return device

    def take(self, source, under_way):
        free = 0.0
        while True:
            try:
                packet = os.read(source, 1 << 16)
            except OSError:  # the device has gone
                return
            self.sent += 1
            if random.random() < self.loss:
                self.lost += 1
                continue
            free = max(free, time.monotonic()) + 8 * len(packet) / self.rate
            under_way.put((free + self.delay, packet))

    def deliver(self, under_way, target):
        while True:
            due, packet = under_way.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                os.write(target, packet)
            except OSError:  # the device is down: lost
                pass


class NetworkSpaces:
    """While it is entered the namespaces are there. Throws OSError or CalledProcessError where they cannot be made."""

    def __init__(self, rate, delay=None, loss=None):
        self.rate, self.delay, self.loss = rate, delay, loss  # as tc writes them: 1gbit, 1ms, 1%
        self.shape = None  # in words, once it is entered
        self.relay = None
        self.names = [f"mnemo{os.getpid()}-{i}" for i in range(2)]
        self.links = [f"mn{os.getpid()}{'ab'[i]}"[-14:] for i in range(2)]

    def __enter__(self):
        def ip(*words):
            subprocess.run(["ip", *words], check=True, capture_output=True)

        try:
            for name in self.names:
                ip("netns", "add", name)
            if (self.delay or self.loss) and not self.kernel_shapes():
                self.relay = Relay(self.links, self.rate, self.delay or "0ms", self.loss or "0%")
            else:
                ip("link", "add", self.links[0], "type", "veth", "peer", "name", self.links[1])
            for i in range(2):
                ip("link", "set", self.links[i], "netns", self.names[i])
                ip("-n", self.names[i], "addr", "add", f"{self.address(i)}/24", "dev", self.links[i])
                for device in ("lo", self.links[i]):
                    ip("-n", self.names[i], "link", "set", device, "up")
                self.shape = self.words() + " (carried by this script: the kernel has no netem)" if self.relay else self.make_link(i)
        except BaseException:
            self.__exit__()
            raise
        return self

    def kernel_shapes(self):
        """Whether it has netem, which does all; tbf limits the rate alone."""
        def qdisc(*words):
            return subprocess.run([*self.prefix(0), "tc", "qdisc", *words], capture_output=True).returncode == 0

        return qdisc("add", "dev", "lo", "root", "netem", "delay", "1ms") and qdisc("del", "dev", "lo", "root")

    def words(self):
        return " ".join([f"rate {self.rate}"] + [f"{name} {value}" for name, value in (("delay", self.delay), ("loss", self.loss)) if value])

    def make_link(self, i):
        add = [*self.prefix(i), "tc", "qdisc", "add", "dev", self.links[i], "root"]
        if self.delay or self.loss:
            subprocess.run([*add, "netem", *self.words().split(), "limit", "100000"], check=True, capture_output=True)
        else:
            subprocess.run([*add, "tbf", "rate", self.rate, "burst", "256kb", "latency", "100ms"], check=True, capture_output=True)
        return self.words()

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def cut(self):
        """Takes the link down: packets are lost, connections stay."""
        subprocess.run([*self.prefix(1), "ip", "link", "set", self.links[1], "down"], check=True, capture_output=True)

    def prefix(self, i):
        """Before a command line that runs on machine i."""
        return ["ip", "netns", "exec", self.names[i]]

    def address(self, i):
        return f"10.77.0.{i + 1}"

    def variables(self, i):
        """Where ranks of machine i meet, and by which interface."""
        return {"MASTER_ADDR": self.address(0), "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": self.links[i]}

    def bits_per_second(self):
        return per_second(self.rate)
