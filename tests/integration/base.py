# SPDX-License-Identifier: Apache-2.0
"""One simulated host for each test case."""
import os
import unittest

from lab import Lab

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


class LabCase(unittest.TestCase):
    HOST = ("--gpus", "8", "--model", "h100-sxm")

    def setUp(self):
        self.lab = Lab(os.environ["METE_BUILD"])
        self.addCleanup(self.lab.__exit__)
        self.lab.create_host(*self.HOST)
        self.kubelet = self.lab.start_kubelet()
        self.agent = None

    def run(self, result=None):
        """Shows the agent's log of a case that failed."""
        before = (len(result.failures), len(result.errors))
        super().run(result)
        if (len(result.failures), len(result.errors)) != before and getattr(self, "last_words", ""):
            print("the agent's log:\n" + self.last_words, flush=True)
        return result

    def tearDown(self):
        log = self.lab.dir / "agent.log"
        self.last_words = "\n".join(log.read_text(errors="replace").splitlines()[-25:]) if log.exists() else ""

    def start(self, *args, allocatable=8, resource=GPU, env=None):
        self.agent = self.lab.start_agent(*args, env=env)
        if allocatable is not None:
            self.kubelet.wait(resource, allocatable=allocatable)
        return self.agent

    def write_config(self, text, name="config.yaml"):
        """Replaces the config file as an editor does it; returns its path."""
        path = self.lab.dir / name
        new = path.with_suffix(".new")
        new.write_text(text)
        new.rename(path)
        return path
