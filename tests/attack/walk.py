"""walk.py: kills and faults at every call that a training job makes, one after another.

A case is a job (dlrm, gpt, examples/job.c: one rank, three, three under mpirun; dlrm with rows in a
file; from nothing, or going on from checkpoints), a call (faults.c: the n-th of a function) and
what is done there: the process is killed, also in the middle of a write; the call fails once, twice
or for ever; it does half. Or the process is killed at a random moment. After that:
  - nothing hangs; the process has ended by the kill, or well, or with a message that names the
    file (or says memory, thread) that the fault was about;
  - a run that ended well printed the digest of an undisturbed run, and one that met EINTR or did
    half ended well;
  - the newest checkpoint is none older than before;
  - the same command, undisturbed, goes on to the right digest, and if it saves, it leaves two
    checkpoints and nothing else.

    walk.py BUILD SECONDS [JOB...]     SECONDS 0: every case; else as many as that allows
Cases come in a random order, the same in every run; each job gets as much time as the others.
"""
import errno, glob, os, random, re, shutil, signal, subprocess, sys, tempfile, threading, time

BUILD, SECONDS = sys.argv[1], float(sys.argv[2])
# In memory, where that can be: a kill is no power failure, and nothing waits for a disk.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
WORK = os.path.realpath(tempfile.mkdtemp(prefix="neo_attack.", dir=MEMORY))
FAULTS = os.path.abspath(os.path.join(BUILD, "tests", "attack", "faults.so"))
WORKERS = int(os.environ.get("JOBS", "2"))
HANG_S = 300
ONCE_TWICE_EVER = (1, 2, 0)
FILES = ("open fopen fclose read pread write pwrite close fsync lseek rename mkdir rmdir unlink "
         "remove lstat stat fstat opendir readdir flock").split()
# The errors of each call. A real one is not interrupted for ever.
ERRORS = {name: ("EIO", "EACCES") for name in FILES}
ERRORS.update(open=("EIO", "EACCES", "EMFILE", "ENOSPC", "EINTR"), fopen=("EIO", "EACCES"),
              read=("EIO", "EINTR", "short"), pread=("EIO", "EINTR", "short"),
              write=("EIO", "ENOSPC", "EINTR", "short"),
              pwrite=("EIO", "ENOSPC", "EINTR", "short"), close=("EIO", "ENOSPC", "EINTR"),
              fsync=("EIO", "ENOSPC", "EINTR"), rename=("EIO", "ENOSPC"),
              mkdir=("EIO", "ENOSPC"), malloc=("ENOMEM",), posix_memalign=("ENOMEM",),
              calloc=("ENOMEM",), realloc=("ENOMEM",), pthread_create=("EAGAIN",))
HARMLESS = ("EINTR", "short")
# Cases that have once gone wrong come first.
KNOWN = {"dlrm_1": [("remove", "kill", 1, 1, 0), ("remove", "kill", 2, 1, 0),
                    ("remove", "kill", 3, 1, 0), ("stat", "EACCES", 2, 0, 0),
                    ("fstat", "EIO", 10, 1, 0)],
         "dlrm_1_resumed": [("read", "EIO", 13, 0, 0)],
         "dlrm_3": [("fstat", "EIO", 5, 2, 0), ("fstat", "EIO", 6, 2, 0)]}
NO_FILE = {"malloc": "memory", "calloc": "memory", "realloc": "memory", "posix_memalign": "memory",
           "pthread_create": "thread|EAGAIN|temporarily unavailable"}


class Job:
    """name, its command without ranks, and how many ranks; mpi: under mpirun."""

    def __init__(self, name, program, options, ranks, mpi=False):
        self.name, self.ranks, self.mpi = name, ranks, mpi
        self.command = [os.path.join(BUILD, program + ("_mpi" if mpi else ""))] + options.split()
        if program == "job":
            self.command += [str(ranks)]
        elif not mpi:
            self.command += ["--ranks", str(ranks)]
        if mpi:
            self.command = MPIRUN + ["-n", str(ranks)] + self.command

    def run(self, folder, env=None, kill_after=None):
        """Exit status, digest or None, stderr."""
        command = [word.replace("DIR", folder) for word in self.command]
        # Of its own session: what it leaves behind when it hangs is ended with it.
        p = subprocess.Popen(command, env={**ENV, **(env or {})}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             start_new_session=True)
        out = err = b""
        try:
            out, err = p.communicate(timeout=HANG_S if kill_after is None else kill_after)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            out, err = p.communicate()
            if kill_after is None:
                return "hangs", None, err.decode(errors="replace")
        digest = re.search(rb"^state ([0-9a-f]{16})$", out, re.M)
        return p.returncode, digest and digest.group(1).decode(), err.decode(errors="replace")


def launcher():
    try:
        text = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    except OSError:
        return None
    return ["mpirun"] + (["--oversubscribe"] if "Open MPI" in text else [])


ENV = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "TMPDIR": "/tmp", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
       "OMPI_MCA_btl_vader_backing_directory": WORK}  # which killed processes leave full
MPIRUN = launcher()


def write_data(path, lines, seed):
    """Criteo's text."""
    rng = random.Random(seed)
    with open(path, "w") as f:
        for _ in range(lines):
            numbers = [str(rng.randrange(100)) for _ in range(13)]
            words = ["%08x" % rng.randrange(40) for _ in range(26)]
            f.write("\t".join([str(rng.randrange(2))] + numbers + words) + "\n")


def jobs():
    saves = "--checkpoint DIR/c --resume --repro-shards 4 "
    dlrm = (saves + f"--data {WORK}/train.tsv --valid {WORK}/valid.tsv --epochs 2 --batch 64 "
            "--shuffle 200 --dim 4 --bottom 13-8-4 --top 8-1 --rows 30 --every 5 --log DIR/log "
            "--report DIR/report.html --optimizer adam")
    gpt = (saves + f"--data {WORK}/text --layers 1 --heads 2 --width 16 --context 8 --batch 8 "
           "--steps 20 --sample 0 --every 5 --eval-every 10 --warmup 5")
    kinds = [("1", 1, False), ("3", 3, False)] + ([("mpi", 3, True)] if MPIRUN else [])
    for label, ranks, mpi in kinds:
        for program, options in ("dlrm", dlrm), ("gpt", gpt), ("job", "DIR/c"):
            if os.path.exists(os.path.join(BUILD, program + ("_mpi" if mpi else ""))):
                yield Job(f"{program}_{label}", program, options, ranks, mpi)
    yield Job("dlrm_tier", "dlrm", saves + "--synthetic 960 --rows 2000 --dim 16 --batch 64 "
              "--every 5 --tier DIR/rows --memory 1500K", 1)


def steps(folder):
    """Of the whole checkpoints in a folder."""
    found = glob.glob(os.path.join(folder, "c", "step-*", "manifest.json"))
    names = [os.path.basename(os.path.dirname(path)) for path in found]
    return [int(name[5:17]) for name in names if not name.endswith(".partial")]


def log_of(folder):
    """What faults.c wrote."""
    try:
        with open(folder + ".calls") as f:
            return f.read()
    except OSError:
        return ""


class Walk:
    """The cases of a job, from nothing (start None) or from the checkpoints in the folder start."""

    def __init__(self, job, start):
        self.job, self.start = job, start
        self.label = job.name + ("_resumed" if start else "")
        self.by_deed, self.spent_s = {}, 0
        self.newest = max(steps(start), default=-1) if start else -1

    def fresh(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        if self.start:
            shutil.copytree(self.start, folder)
        else:
            os.makedirs(folder)
        if os.path.exists(folder + ".calls"):
            os.remove(folder + ".calls")

    def env(self, folder, calls, deed="EIO", at=0, times=1, rank=0):
        env = {"LD_PRELOAD": FAULTS, "FAULT_CALLS": calls, "FAULT_DO": deed, "FAULT_AT": str(at),
               "FAULT_TIMES": str(times), "FAULT_UNDER": WORK, "FAULT_LOG": folder + ".calls"}
        if self.job.mpi:
            env["FAULT_RANK"] = str(rank)
        return env

    def count(self, folder, rank):
        """How often the undisturbed job makes each call."""
        self.fresh(folder)
        status, digest, err = self.job.run(folder, self.env(folder, ",".join(ERRORS), rank=rank))
        if status != 0 or digest != self.job.digest:
            raise SystemExit(f"FAILED {self.label}: undisturbed: {status} {digest} {err}")
        found = re.findall(r"^called (\S+) (\d+)", log_of(folder), re.M)
        return {name: int(n) for name, n in found}

    def cases(self, folder):
        """(calls, deed, n, times, rank) of each."""
        some = SECONDS > 0
        every = ",".join(FILES)
        for rank in range(self.job.ranks if self.job.mpi and not some else 1):
            if some and self.job.mpi:
                rank = random.Random(self.label).randrange(self.job.ranks)
            counts = self.count(folder, rank)
            total = sum(counts.get(name, 0) for name in FILES)
            for n in range(1, total + 1):
                yield every, "kill", n, 1, rank
            for name in "write", "pwrite":
                for n in range(1, counts.get(name, 0) + 1):
                    yield name, "torn", n, 1, rank
            for n in range(total // 4):
                if not self.job.mpi:
                    yield every, "moment", n, 1, rank
            for name, errors in ERRORS.items():
                for n in range(1, counts.get(name, 0) + 1):
                    for error in errors:
                        for times in ONCE_TWICE_EVER:
                            if times or error not in HARMLESS or error == "short":
                                yield name, error, n, times, rank

    def judge(self, folder, case, result, struck):
        """What is wrong, or None."""
        calls, deed, _, times, _ = case
        status, digest, err = result
        if status == "hangs":
            return "hangs"
        if "kill" in deed or deed in ("torn", "moment"):
            if struck and not self.job.mpi and status != -9:
                return f"ends with {status} when killed"
        elif not isinstance(status, int) or status < 0:
            return f"ends with {status}"
        elif status != 0 and not err.strip():
            return f"ends with {status} and no message"
        elif status != 0 and deed in HARMLESS:
            return f"{deed} ends it: {err.strip()[-300:]}"
        elif status != 0 and struck:
            words = NO_FILE.get(calls)
            names = [re.sub(r"( \(deleted\)|\.partial|\.tmp)*$", "", os.path.basename(path))
                     for path in struck]
            # A file that only tries whether a directory can be written: the message names that.
            names += [os.path.dirname(path) for path in struck if path.endswith("/.writable")]
            if not (re.search(words, err) if words else any(name in err for name in names)):
                return f"the message does not name {words or names}: {err.strip()[-300:]}"
            # fstat: a file whose size is not known; mkdir: gpt tries to write there all the same.
            said = words or calls in ("fstat", "mkdir") or os.strerror(getattr(errno, deed)) in err
            if not said:
                return f"the message does not say {deed}: {err.strip()[-300:]}"
        elif status != 0:
            return f"ends with {status} though nothing was struck: {err.strip()[-300:]}"
        if status == 0 and digest != self.job.digest:
            return f"ends well with the digest {digest}"
        if max(steps(folder), default=-1) < self.newest:
            return f"the newest checkpoint is of step {max(steps(folder), default=-1)}"
        before = max(steps(folder), default=-1)
        status, digest, err = self.job.run(folder)
        if status != 0 or digest != self.job.digest:
            return f"resumed from {before}: {status}, digest {digest}: {err.strip()[-300:]}"
        if before >= 0 and "starting from the beginning" in err:
            return f"starts anew, though there is step {before}"
        # What a dead save left, or did not remove any more, goes with the next one.
        saved = max(steps(folder)) > before
        left = sorted(name for name in os.listdir(os.path.join(folder, "c"))
                      if name != "best" and (saved or not name.endswith(".partial")))
        # A fault that lasted may have hidden what a checkpoint needs: older ones stay until a save.
        hidden = times == 0 and not saved
        named = all(re.fullmatch(r"step-\d{12}", name) for name in left)
        if len(left) > 3 - saved and not hidden or not named:
            return f"leaves {left}"
        return None

    def run(self, folder, case):
        calls, deed, n, times, rank = case
        self.fresh(folder)
        env, moment = self.env(folder, calls, deed, n, times, rank), None
        if deed == "moment":
            env, moment = {}, random.Random(n).random() * self.job.seconds
        struck = []
        try:
            result = self.job.run(folder, env, moment)
            struck = re.findall(r"^struck \S+ (.*)", log_of(folder), re.M)
            why = self.judge(folder, case, result, struck)
        except Exception as error:  # a folder that is not there any more
            why = repr(error)
        with LOCK:
            tried, wrong = self.by_deed.get(deed, (0, 0))
            self.by_deed[deed] = tried + 1, wrong + (why is not None)
            if why and wrong < 12:
                print(f"FAILED {self.label}: {deed} at {n} of {calls if len(calls) < 40 else 'all'}"
                      f", {times or 'all'} times, rank {rank} ({struck[:1]}): {why}", flush=True)


LOCK = threading.Lock()


def prepare(job):
    """The digest of the job, and checkpoints of a run that was killed on its way."""
    folder = os.path.join(WORK, job.name)
    walk = Walk(job, None)
    walk.fresh(folder)
    began = time.monotonic()
    status, job.digest, err = job.run(folder)
    job.seconds = time.monotonic() - began
    if status != 0 or not job.digest:
        raise SystemExit(f"FAILED {job.name}: undisturbed: {status} {err}")
    manifests = {**walk.env(folder, "rename"), "FAULT_UNDER": "manifest.json"}
    walk.fresh(folder)
    job.run(folder, manifests)
    saves = int(re.search(r"called rename (\d+)", log_of(folder)).group(1))
    start = folder + ".start"
    walk.fresh(start)
    job.run(start, {**manifests, "FAULT_DO": "kill", "FAULT_AT": str(max(saves - 1, 2))})
    return [walk, Walk(job, start)]


def main():
    write_data(os.path.join(WORK, "train.tsv"), 640, 1)
    write_data(os.path.join(WORK, "valid.tsv"), 128, 2)
    with open(os.path.join(WORK, "text"), "w") as f:
        f.write("To be, or not to be, that is the question. " * 100)
    wanted = sys.argv[3:]
    walks = [walk for job in jobs() if not wanted or job.name in wanted for walk in prepare(job)]
    for walk in walks:
        walk.left = list(walk.cases(os.path.join(WORK, "count")))
        random.Random(walk.label).shuffle(walk.left)
        walk.left += KNOWN.get(walk.label, [])
    count = sum(len(walk.left) for walk in walks)
    began = time.monotonic()

    def work(number):
        while not SECONDS or time.monotonic() - began < SECONDS:
            with LOCK:
                walk = min((w for w in walks if w.left), key=lambda w: w.spent_s, default=None)
                if not walk:
                    return
                case = walk.left.pop()
                walk.spent_s += 0.01  # so that the others come before it is done
            from_s = time.monotonic()
            walk.run(os.path.join(WORK, f"case{number}"), case)
            with LOCK:
                walk.spent_s += time.monotonic() - from_s

    workers = [threading.Thread(target=work, args=(k,)) for k in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    tried = wrong = 0
    for walk in walks:
        words = [f"{deed} {t}" + (f" ({w} wrong)" if w else "")
                 for deed, (t, w) in sorted(walk.by_deed.items())]
        print(f"attack: {walk.label}: " + ", ".join(words))
        tried += sum(t for t, _ in walk.by_deed.values())
        wrong += sum(w for _, w in walk.by_deed.values())
    print(f"attack: {tried} of {count} cases")
    print(f"attack/walk: {tried - wrong} passed, {wrong} failed, 0 skipped")
    return wrong != 0


try:
    sys.exit(main())
finally:
    shutil.rmtree(WORK, ignore_errors=True)
