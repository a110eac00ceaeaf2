"""Goal: `deja engine --device`: each thing that can be wrong with a GPU is one sentence, `auto` then serves on the CPU, /ready and /metrics say
what computes, and the whole engine gives through the CUDA backend (in emulation) the tokens it gives on the CPU.
Method: build/dev/deja, which has no CUDA; build/dev/deja_emu, whose GPU is the emulation and which the environment makes fail (see
tests/cuda_emu/include/cuda_runtime.h); build/cuda/deja where it was built and no GPU is there."""
import json
import os
import subprocess
import tempfile
import time
import unittest

from tests.integration.rig import BIN, DATA, ROOT, Rig, call, free_port, is_ready
from tests.integration.test_engine_server import CHAT, metrics, user

LLAMA = os.path.join(DATA, "tiny-llama-f32.gguf")
MIXED = os.path.join(DATA, "tiny-llama-mixed.gguf")
EMU = os.path.join(os.path.dirname(BIN), "deja_emu")
CUDA = os.path.join(ROOT, "build", "cuda", "deja")
SMALL = ("--max-model-len", "128", "--max-num-batched-tokens", "64", "--swap-space", "0.001", "--max-num-seqs", "2")


def start(binary, *options, model=LLAMA, **env):
    """An engine that must refuse to start: its status and what it says."""
    p = subprocess.run([binary, "engine", "--model", model, "--port", "0", *SMALL, *options], env=dict(os.environ, **dict({"CUDA_EMU_BYTES": "33554432"}, **env)), capture_output=True,
                       text=True, timeout=60)
    return p.returncode, p.stderr


def has_gpu():
    return os.path.exists("/dev/nvidiactl")


class Device(unittest.TestCase):
    def refuses(self, binary, wanted, *options, **env):
        status, said = start(binary, *options, **env)
        lines = [x for x in said.splitlines() if x.startswith("deja engine: ")]
        self.assertEqual((status, len(lines)), (1, 1), said)
        self.assertRegex(lines[0], wanted)

    def engine(self, rig, name, binary, *options, model=LLAMA, **env):
        port = free_port()
        p = rig.add(name, [binary, "engine", "--model", model, "--served-model-name", "t", "--port", str(port), *SMALL, *options], dict({"CUDA_EMU_BYTES": "33554432"}, **env))
        p.wait_for(lambda: is_ready(port), 120)
        return p, port

    def says(self, port, text, **fields):
        body = dict({"model": "t", "messages": user(text), "max_tokens": 12, "temperature": 0}, **fields)
        status, _, raw = call(port, "POST", CHAT, body, timeout=120)
        self.assertEqual(status, 200, raw)
        return [c["message"]["content"] for c in json.loads(raw)["choices"]]

    def device(self, port):
        return json.loads(call(port, "GET", "/ready")[2])["device"]

    def test_a_program_without_cuda_says_so_and_auto_serves_on_the_cpu(self):
        self.refuses(BIN, r"option device: device \"cuda\" is not built into this program: cpu is \(a build with the CUDA toolkit has cuda\)",
                     "--device", "cuda")
        with Rig() as rig:
            _, port = self.engine(rig, "engine", BIN, "--device", "auto")
            self.assertEqual(self.device(port), "cpu")
            self.assertIn('device="cpu"', call(port, "GET", "/metrics")[2].decode())

    @unittest.skipUnless(os.path.exists(CUDA) and not has_gpu(), "needs build/cuda/deja (./dev build cuda) and no GPU")
    def test_a_program_with_cuda_starts_without_a_driver(self):
        self.refuses(CUDA, r"option device: no CUDA device: there is no NVIDIA driver$", "--device", "cuda")
        with Rig() as rig:
            _, port = self.engine(rig, "engine", CUDA, "--device", "auto")
            self.assertEqual(self.device(port), "cpu")

    @unittest.skipUnless(os.path.exists(EMU), "needs deja_emu")
    def test_each_fault_of_a_gpu_is_one_sentence(self):
        for wanted, options, env in (
                (r"option device: no CUDA device: there is no NVIDIA driver$", ("cuda",), {"CUDA_EMU_DEVICES": "-1"}),
                (r"no CUDA device: the driver is for CUDA 11\.8, this program for 13\.0$", ("cuda",), {"CUDA_EMU_DEVICES": "-2"}),
                (r"no CUDA device: the driver lists none", ("cuda",), {"CUDA_EMU_DEVICES": "0"}),
                (r"no CUDA device 3: there is 1, counted from 0", ("cuda:3",), {}),
                (r"emulation has compute capability 7\.5; 8\.0 or newer is needed", ("cuda",), {"CUDA_EMU_CAPABILITY": "7.5"}),
                (r"emulation has compute capability 10\.0, for which this program was not built", ("cuda",),
                 {"CUDA_EMU_CAPABILITY": "10.0", "CUDA_EMU_NO_KERNELS": "1"}),
                (r"cuda:0: \d+ MiB of \d+ may be used, \d+ are in use and \d+ needed", ("cuda",), {"CUDA_EMU_BYTES": "100000"}),
                (r"exact arithmetic runs on the CPU only", ("cuda", "--exact", "yes"), {}),
                (r"no GPU memory for \d+ KV blocks", ("cuda", "--kv-bytes", "1000000000"), {"CUDA_EMU_BYTES": "100000000"}),
                (r"the GPU failed at .*: unspecified launch failure", ("cuda",), {"CUDA_EMU_LOSE_AFTER": "0"}),
                (r"no CUDA device 1: there is 1, counted from 0", ("cuda", "--tensor-parallel-size", "2"), {}),
                (r"4 heads and 2 KV heads do not go into 3 ranks; into 1, 2, 4 they do", ("cuda", "--tensor-parallel-size", "3"), {"CUDA_EMU_DEVICES": "3"}),
                (r"2 GPUs compute together by NCCL, and libnccl.so.2 is not to be found", ("cuda", "--tensor-parallel-size", "2"),
                 {"CUDA_EMU_DEVICES": "2", "CUDA_EMU_NO_NCCL": "1"}),
                (r"device \"gpu\" is not built into this program: cpu, cuda and cuda:N are", ("gpu",), {})):
            with self.subTest(wanted):
                self.refuses(EMU, wanted, "--device", *options, **env)

    def test_a_calibration_is_written_and_fits_its_model_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            text, made = os.path.join(folder, "text"), os.path.join(folder, "cal")
            with open(text, "w") as f:
                f.write("The quick brown fox jumps over the lazy dog, and then again. " * 20)
            r = subprocess.run([BIN, "engine", "--model", MIXED, "--calibrate", text, "--gpu-calibration", made], capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual((r.returncode, r.stderr), (0, ""))
            self.assertRegex(r.stdout, r"cal: \d+ tokens; \d+ of 13 products gain")
            fits = ("--gpu-products", "int8", "--gpu-calibration", made)
            self.refuses(BIN, r"measured on another model file", "--device", "cpu", *fits)
            with Rig() as rig: # the CPU checks it and needs it for nothing
                self.engine(rig, "cpu", BIN, *fits, model=MIXED)
            if os.path.exists(EMU):
                with Rig() as rig:
                    _, port = self.engine(rig, "gpu", EMU, "--device", "cuda", *fits, model=MIXED)
                    self.assertEqual(self.device(port), "cuda:0")
            os.truncate(made, 1000)
            status, said = start(BIN, *fits, model=MIXED)
            self.assertEqual(status, 1)
            self.assertIn("cut short", said)

    @unittest.skipUnless(os.path.exists(EMU), "needs deja_emu")
    def test_auto_takes_the_gpu_or_says_why_not_and_serves(self):
        with Rig() as rig:
            _, gpu = self.engine(rig, "gpu", EMU, "--device", "auto")
            _, cpu = self.engine(rig, "cpu", BIN)
            self.assertEqual((self.device(gpu), self.device(cpu)), ("cuda:0", "cpu"))
            self.assertIn('device="cuda:0",device_model="emulation"', call(gpu, "GET", "/metrics")[2].decode())
            for text in ("one", "two words", "three more words"):
                self.assertEqual(self.says(gpu, text), self.says(cpu, text))
        with Rig() as rig:
            p, port = self.engine(rig, "none", EMU, "--device", "auto", CUDA_EMU_DEVICES="0")
            self.assertEqual(self.device(port), "cpu")
            self.assertIn("device=auto: no CUDA device: the driver lists none; going on with the CPU", p.tail())

    @unittest.skipUnless(os.path.exists(EMU), "needs deja_emu")
    def test_two_gpus_say_what_one_cpu_says_and_the_loss_of_one_ends_both(self):
        two = ("--tensor-parallel-size", "2")
        with Rig() as rig:
            _, gpus = self.engine(rig, "gpus", EMU, "--device", "cuda", *two, CUDA_EMU_DEVICES="2")
            _, ranks = self.engine(rig, "ranks", BIN, *two)
            _, cpu = self.engine(rig, "cpu", BIN)
            self.assertEqual([self.device(p) for p in (gpus, ranks, cpu)], ["cuda:0 x2", "cpu x2", "cpu"])
            for text in ("one", "two words"):
                alone = self.says(cpu, text)
                self.assertEqual([self.says(p, text) for p in (gpus, ranks)], [alone, alone])
        with Rig() as rig:
            p, port = self.engine(rig, "lost", EMU, "--device", "auto", *two, CUDA_EMU_DEVICES="2", CUDA_EMU_LOSE_AFTER="800", CUDA_EMU_LOSE_DEVICE="1")
            end, status = time.time() + 60, 200
            while status == 200 and time.time() < end:
                status, _, raw = call(port, "POST", CHAT, {"model": "t", "messages": user("more"), "max_tokens": 40, "ignore_eos": True})
            self.assertEqual(status, 500, raw)
            self.assertIn("the GPU failed at a sum over the ranks", raw.decode())
            p.wait_for(lambda: is_ready(port) and self.device(port) == "cpu x2", 60)

    @unittest.skipUnless(os.path.exists(EMU), "needs deja_emu")
    def test_a_lost_gpu_fails_its_requests_and_auto_starts_anew_on_the_cpu(self):
        with Rig() as rig:
            p, port = self.engine(rig, "lost", EMU, "--device", "auto", CUDA_EMU_LOSE_AFTER="800")
            end, status = time.time() + 60, 200
            while status == 200 and time.time() < end:
                status, _, raw = call(port, "POST", CHAT, {"model": "t", "messages": user("more"), "max_tokens": 40, "ignore_eos": True})
            self.assertEqual(status, 500, raw)
            self.assertIn("the GPU failed at", raw.decode())
            p.wait_for(lambda: is_ready(port) and self.device(port) == "cpu", 60)
            self.assertIn("starting anew on the CPU", p.tail(20000))
            self.assertTrue(self.says(port, "and on it goes"))
        with Rig() as rig:
            p, port = self.engine(rig, "ends", EMU, "--device", "cuda", CUDA_EMU_LOSE_AFTER="800")
            end = time.time() + 60
            while p.popen.poll() is None and time.time() < end:
                try:
                    call(port, "POST", CHAT, {"model": "t", "messages": user("more"), "max_tokens": 40, "ignore_eos": True})
                except OSError:
                    time.sleep(0.1)
            self.assertEqual(p.popen.wait(20), 1)
            self.assertIn("deja engine: the GPU failed at", p.tail())


if __name__ == "__main__":
    unittest.main()
