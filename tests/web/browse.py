"""What a person does with the page: see run."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

PATIENCE = 30_000
COMMANDS = ("slotd", "sbatch", "scancel", "squeue", "sacct", "sinfo", "scontrol")
EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"

results = {"ok": 0, "not ok": 0}


class Lab:
    """A daemon with its commands, and the server of the page."""

    def __init__(self, work, slotd):
        self.work = work
        for name in ("bin", "home"):
            (work / name).mkdir()
        for name in COMMANDS:
            (work / "bin" / name).symlink_to(slotd)
        gpu = work / "bin" / "nvidia-smi"
        gpu.write_text("#!/bin/sh\ncase \"$*\" in *compute-apps*|*-L*) ;; *) echo 0, NVIDIA H200, GPU-0, 40000, 30000, 60, Disabled;; esac\n")
        gpu.chmod(0o755)
        steering = re.compile(r"^(SLOTD|SLURM|SBATCH|SQUEUE|SACCT|SINFO)_")
        self.env = {name: value for name, value in os.environ.items() if not steering.match(name)}
        self.env.update(
            SLOTD_ROOT=str(work / "root"), SLOTD_CPUS="2", SLOTD_MEMORY_MB="4000",
            SLOTD_KILL_WAIT="1", HOME=str(work / "home"), PATH=f"{work / 'bin'}:/usr/bin:/bin",
            # It is past 13:00: no midnight comes, from which the history begins.
            TZ=f"RUN{time.gmtime().tm_hour - 13:+d}")
        self.started = [self.start("daemon", stderr=open(work / "daemon.log", "w"))]
        while subprocess.run(["sinfo"], env=self.env, capture_output=True).returncode:
            if self.started[0].poll() is not None:
                raise RuntimeError((work / "daemon.log").read_text())

    def start(self, *words, **options):
        return subprocess.Popen([self.work / "bin" / "slotd", *words], env=self.env, cwd=self.work, text=True, **options)

    def web(self):
        server = self.start("web", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.started.append(server)
        return server.stdout.readline().strip()

    def run(self, *words):
        return subprocess.run(words, env=self.env, cwd=self.work, check=True, capture_output=True, text=True).stdout.strip()

    def submit(self, *words):
        return self.run("sbatch", "--parsable", *words)

    def end(self):
        subprocess.run(["scancel", "--me"], env=self.env)
        for process in reversed(self.started):
            process.send_signal(signal.SIGTERM)
            process.wait()


def row(page, where, job):
    return page.locator(f"#{where} tr[data-job='{job}']")


def go(page, view):
    page.get_by_role("navigation").get_by_role("link", name=view).click()


def confirm(page, words):
    expect(page.get_by_role("dialog")).to_contain_text(words)
    page.get_by_role("dialog").get_by_role("button", name="Yes").click()


# Each is a thing that is looked at. They come one after another, on one page.

def the_address_opens_the_page_and_does_not_stay(lab, page):
    page.goto(lab.address)
    expect(page.locator("#connection")).to_have_text("connected")
    assert "token" not in page.url, page.url
    page.reload()
    expect(page.locator("#connection")).to_have_text("connected")


def a_second_opening_is_refused(lab, page):
    other = page.context.browser.new_context()
    answer = other.new_page().goto(lab.address)
    assert answer.status == 401, answer.status
    other.close()


def jobs_start_and_end_without_a_reload(lab, page):
    job = lab.submit("-c", "2", "-J", "first", "--wrap", "until [ -e first ]; do sleep 0.1; done")
    waits = lab.submit("-c", "2", "-t", "5", "-J", "second", "--wrap", "until [ -e second ]; do sleep 0.1; done")
    expect(row(page, "running", job)).to_contain_text("first")
    expect(row(page, "waiting", waits)).to_contain_text(f"job {job}")
    expect(row(page, "waiting", waits).locator("[data-head=Turn]")).to_have_text("1")
    (lab.work / "first").touch()
    expect(row(page, "ended", job)).to_contain_text("COMPLETED")
    expect(row(page, "running", waits)).to_contain_text("of 5:00")
    (lab.work / "second").touch()
    expect(row(page, "ended", waits)).to_contain_text("COMPLETED")


def what_was_cancelled_is_asked_about_first(lab, page):
    job = lab.submit("-J", "doomed", "--wrap", "sleep 1000")
    cancel = row(page, "running", job).get_by_role("button", name="cancel")
    cancel.click()
    page.get_by_role("dialog").get_by_role("button", name="No").click()
    assert lab.run("squeue", "-h", "-o", "%t", "-j", job) == "R"
    cancel.click()
    confirm(page, f"Cancel job {job} (doomed)?")
    expect(row(page, "ended", job)).to_contain_text("CANCELLED")
    expect(page.locator("#said")).to_contain_text("cancel: done")


def an_answer_belongs_to_its_question(lab, page):
    job = lab.submit("-H", "-J", "asked-twice", "--wrap", "true")
    cancel = row(page, "waiting", job).get_by_role("button", name="cancel")
    # The first question is closed, and before the page is told of that, the second is open.
    cancel.evaluate("button => { button.click(); document.querySelector('dialog[open]').close(); button.click(); }")
    confirm(page, f"Cancel job {job} (asked-twice)?")
    expect(row(page, "ended", job)).to_contain_text("CANCELLED")


def script_in_a_name_is_text(lab, page):
    job = lab.submit("-H", "-J", EVIL, "--wrap", "true")
    expect(row(page, "waiting", job)).to_contain_text(EVIL)
    row(page, "waiting", job).get_by_role("link").click()
    expect(page.locator("#job-title")).to_contain_text(EVIL)
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("group", name="Actions").get_by_role("button", name="cancel").click()
    confirm(page, EVIL)
    expect(page.locator("#job dl")).to_contain_text("CANCELLED")
    go(page, "Queue")


def an_array_is_one_row_that_opens(lab, page):
    array = lab.submit("-a", "1-6%1", "-J", "many", "--wrap", "until [ -e all ]; do sleep 0.1; done")
    group = page.locator(f"#waiting tr[data-array='{array}']")
    expect(group).to_contain_text("0 of 6 done, 1 running, 5 waiting")
    expect(row(page, "waiting", f"{array}_[2-6%1]")).to_have_count(0)
    group.get_by_role("button", name="[…]").click()
    expect(row(page, "waiting", f"{array}_[2-6%1]")).to_have_count(1)
    (lab.work / "all").touch()
    expect(page.locator(f"#ended tr[data-array='{array}']")).to_contain_text("6 tasks ended")


def a_job_is_submitted_by_the_form(lab, page):
    go(page, "Submit")
    form = page.locator("form#submit")
    form.get_by_label("Name", exact=True).fill("it's mine")
    form.get_by_label("CPUs for each task").fill("2")
    form.get_by_label("More options").fill("--comment='by form'")
    form.locator("textarea").fill("#!/bin/sh\necho by $SLURM_JOB_NAME\n")
    line = "sbatch '--job-name=it'\\''s mine' --cpus-per-task=2 '--comment=by form' <<'EOF'\n#!/bin/sh\necho by $SLURM_JOB_NAME\nEOF\n"
    expect(page.locator("#line")).to_have_text(line)
    form.get_by_role("button", name="Submit").click()
    expect(page.locator("#said")).to_contain_text("Submitted job")
    page.get_by_role("link", name="show it").click()
    expect(page.locator("#job dl")).to_contain_text("COMPLETED")
    expect(page.get_by_role("region", name="Output")).to_have_text("by it's mine\n")
    page.locator("#job summary").first.click()
    expect(page.locator("#job pre[aria-label='Script']")).to_contain_text("echo by $SLURM_JOB_NAME")
    go(page, "Submit")
    form.get_by_label("CPUs for each task").fill("many")
    form.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("alert")).to_contain_text("cpus-per-task")


def a_log_is_followed_from_its_end(lab, page):
    wrap = "seq 300000; until [ -e go ]; do sleep 0.1; done; echo more; echo wrong >&2; until [ -e done ]; do sleep 0.1; done"
    job = lab.submit("-o", "log-%j", "-e", "err-%j", "--wrap", wrap)
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    out = page.locator("#job .output").first.locator("pre")
    expect(out).to_contain_text("\n300000\n")
    assert len(out.text_content()) < 100_000, "only the end is fetched"
    (lab.work / "go").touch()
    expect(out).to_contain_text("300000\nmore\n")
    expect(page.locator("#job .output").last.locator("pre")).to_have_text("wrong\n")
    assert out.evaluate("pre => pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 2"), "it stays at the end"
    page.get_by_role("button", name="Show what is before").first.click()
    expect(out).to_contain_text("\n260000\n")
    (lab.work / "done").touch()
    expect(page.locator("#job dl")).to_contain_text("COMPLETED")


def a_job_plots_what_it_used(lab, page):
    wrap = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); until [ -e plotted ]; do sleep 0.1; done"
    job = lab.submit("--wrap", wrap)
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    memory = page.locator("#job [data-plot=Memory]")
    expect(memory).to_contain_text("Memory: at most ")
    expect(memory.locator("svg")).to_have_attribute("aria-label", re.compile("^Memory: at most "))
    expect(memory.locator("path")).to_have_attribute("d", re.compile(r"v-[1-9]"))
    (lab.work / "plotted").touch()
    expect(page.locator("#job dl")).to_contain_text("COMPLETED")
    expect(memory).to_be_visible()


def gpus_of_a_job_and_of_the_host_are_plotted(lab, page):
    job = lab.submit("-G", "1", "--wrap", "until [ -e computed ]; do sleep 0.1; done")
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    gpus = page.locator("#job [data-plot=GPUs]")
    expect(gpus).to_contain_text("GPUs in use: 0.")
    expect(gpus.locator("path")).to_have_attribute("d", re.compile(r"v-[1-9]"))
    expect(page.locator("#job [data-plot='GPU memory']")).to_contain_text("GPU memory: at most ")
    go(page, "Queue")
    page.get_by_text("What the host used in the last hour").click()
    for name in ("CPUs", "Memory", "GPU 0"):
        chart = page.locator(f"#host-use [data-plot='{name}']")
        expect(chart.locator("path")).to_have_attribute("d", re.compile(r"v-[1-9]"))
    expect(page.locator("#host-use [data-plot='GPU 0']")).to_contain_text("GPU 0: 60% busy")
    go(page, "Timeline")
    expect(page.locator("#timeline-use [data-plot=CPUs]")).to_contain_text("CPUs in use: ")
    (lab.work / "computed").touch()
    go(page, "Queue")
    expect(row(page, "ended", job)).to_contain_text("COMPLETED")


def what_failed_is_submitted_once_more(lab, page):
    job = lab.submit("-J", "unlucky", "--wrap", "exit 3")
    row(page, "ended", job).get_by_role("button", name="retry").click()
    confirm(page, f"Submit once more: job {job} (unlucky)?")
    expect(page.locator("#said")).to_contain_text("retry: done")
    page.locator("#said a").click()
    expect(page.locator("#job-title")).to_contain_text("unlucky")
    expect(page.locator("#job dl")).to_contain_text("FAILED")
    assert page.locator("#job-title").text_content() != f"Job {job} unlucky"
    expect(page.get_by_role("list", name="Why")).to_contain_text("FAILED")


def a_job_that_waits_says_why_and_is_edited(lab, page):
    job = lab.submit("-H", "-t", "10", "-J", "draft", "--wrap", "true")
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    why = page.get_by_role("list", name="Why")
    expect(why).to_contain_text(f"Job {job} (draft) is PENDING")
    expect(why).to_contain_text("To change that: ")
    page.get_by_role("button", name="Edit options and script").click()
    text = page.get_by_label("Options and script", exact=True)
    expect(text).to_have_value(re.compile("#SBATCH --time=00:10:00"))
    shown = text.input_value()
    text.fill(shown.replace("00:10:00", "soon"))
    page.get_by_role("button", name="Change the job").click()
    confirm(page, f"Change job {job}?")
    expect(page.get_by_role("alert")).to_contain_text("soon")
    text.fill(shown.replace("00:10:00", "00:20:00"))
    page.get_by_role("button", name="Change the job").click()
    confirm(page, f"Change job {job}?")
    expect(page.locator("#said")).to_contain_text(f"job {job} is changed")
    expect(page.locator("#job dl")).to_contain_text("20:00")
    expect(text).to_be_hidden()
    page.get_by_role("group", name="Actions").get_by_role("button", name="cancel").click()
    confirm(page, f"Cancel job {job}")
    expect(page.locator("#job dl")).to_contain_text("CANCELLED")
    expect(page.get_by_role("button", name="Edit options and script")).to_be_hidden()


def history_is_searched(lab, page):
    go(page, "History")
    form = page.locator("form#search")
    form.get_by_label("Name", exact=True).fill("second")
    form.get_by_role("button", name="Search").click()
    expect(page.locator("#found")).to_have_text("1 jobs")
    expect(page.locator("#history")).to_contain_text("COMPLETED")
    form.get_by_label("From").fill("soon")
    form.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("Invalid time specification")


def the_timeline_shows_who_ran_and_what_is_planned(lab, page):
    runs = lab.submit("-c", "2", "-t", "10", "--wrap", "until [ -e over ]; do sleep 0.1; done")
    planned = lab.submit("-c", "1", "-t", "5", "--wrap", "true")
    go(page, "Timeline")
    expect(page.locator(f"#timeline a[data-job='{runs}'] rect[data-state=RUNNING]")).to_have_count(2)
    expect(page.locator(f"#timeline a[data-job='{planned}'] rect.planned")).to_have_count(1)
    expect(page.locator("#timeline rect[data-state=COMPLETED]").first).to_be_attached()
    (lab.work / "over").touch()
    expect(page.locator(f"#timeline a[data-job='{runs}'] rect[data-state=COMPLETED]")).to_have_count(2)


def the_keyboard_is_enough(lab, page):
    job = lab.submit("-H", "-J", "by-key", "--wrap", "true")
    go(page, "Queue")
    expect(row(page, "waiting", job)).to_be_visible()
    page.locator("body").click(position={"x": 1, "y": 1})
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"))
        if seen[-1] == f"cancel job {job}":
            break
    assert seen[-1] == f"cancel job {job}", seen
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    focused = ""
    for _ in range(3):
        page.keyboard.press("Tab")
        focused = page.evaluate("document.activeElement.textContent")
        if focused == "Yes":
            break
    assert focused == "Yes", focused
    page.keyboard.press("Enter")
    expect(row(page, "ended", job)).to_contain_text("CANCELLED")


def views(page):
    for view in ("Queue", "Timeline", "History", "Submit"):
        go(page, view)
        expect(page.get_by_role("heading", level=2)).to_be_visible()
        yield view
    go(page, "Queue")
    page.locator("#ended a").first.click()
    expect(page.locator("#job dl")).to_contain_text("State")
    yield "Job"


def nothing_is_wider_than_a_telephone(lab, page):
    lab.submit("-H", "-J", "n" * 200, "--wrap", "true")
    page.set_viewport_size({"width": 320, "height": 640})
    for view in views(page):
        width = page.evaluate("document.documentElement.scrollWidth")
        picture(page, f"telephone-{view}")
        assert width <= 320, f"{view} is {width} wide"
    page.set_viewport_size({"width": 1280, "height": 800})


def axe_finds_no_fault_in_light_and_dark(lab, page):
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        backs = set()
        for view in views(page):
            backs.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            picture(page, f"{scheme}-{view}")
            found = Axe().run(page).response["violations"]
            told = [f"{fault['id']}: {node['html'][:120]}" for fault in found for node in fault["nodes"][:2]]
            assert not told, f"{scheme} {view}: {told}"
        assert backs == {"rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)"}, backs


def a_daemon_that_comes_back_is_seen(lab, page):
    go(page, "Queue")
    lab.started[0].send_signal(signal.SIGTERM)
    lab.started[0].wait()
    expect(page.locator("#connection")).to_have_text("the daemon does not answer")
    lab.started[0] = lab.start("daemon", stderr=subprocess.DEVNULL)
    expect(page.locator("#connection")).to_have_text("connected")
    while subprocess.run(["sinfo"], env=lab.env, capture_output=True).returncode:
        pass
    job = lab.submit("-H", "-J", "after", "--wrap", "true")
    expect(row(page, "waiting", job)).to_contain_text("after")


def the_page_has_made_no_fault(lab, page):
    assert not page.faults, page.faults


LOOKS = (
    the_address_opens_the_page_and_does_not_stay,
    a_second_opening_is_refused,
    jobs_start_and_end_without_a_reload,
    what_was_cancelled_is_asked_about_first,
    an_answer_belongs_to_its_question,
    script_in_a_name_is_text,
    an_array_is_one_row_that_opens,
    a_job_is_submitted_by_the_form,
    a_log_is_followed_from_its_end,
    a_job_plots_what_it_used,
    gpus_of_a_job_and_of_the_host_are_plotted,
    what_failed_is_submitted_once_more,
    a_job_that_waits_says_why_and_is_edited,
    history_is_searched,
    the_timeline_shows_who_ran_and_what_is_planned,
    the_keyboard_is_enough,
    nothing_is_wider_than_a_telephone,
    axe_finds_no_fault_in_light_and_dark,
    a_daemon_that_comes_back_is_seen,
    the_page_has_made_no_fault,
)


def picture(page, name):
    if len(sys.argv) > 2:
        page.screenshot(path=pathlib.Path(sys.argv[2]) / f"{name}.png", full_page=True)


def watch(page):
    """Notes what the page does wrong; a refusal that the server has words for is none."""
    page.faults = []
    page.on("pageerror", lambda error: page.faults.append(str(error)))
    page.on("dialog", lambda dialog: (page.faults.append(f"alert: {dialog.message}"), dialog.dismiss()))
    def console(message):
        if message.type == "error" and "Failed to load resource" not in message.text:
            page.faults.append(message.text)
    page.on("console", console)


def look(lab, page, what):
    name = what.__name__.replace("_", " ")
    try:
        what(lab, page)
    except Exception as why:
        results["not ok"] += 1
        print(f"not ok {name}: {str(why).strip()}", flush=True)
        traceback.print_exc()
        picture(page, f"not-{name.replace(' ', '-')}")
    else:
        results["ok"] += 1
        print(f"ok {name}", flush=True)


def main():
    with tempfile.TemporaryDirectory() as work, sync_playwright() as driver:
        lab = Lab(pathlib.Path(work), pathlib.Path(sys.argv[1]))
        try:
            lab.address = lab.web()
            sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.set_default_timeout(PATIENCE)
            expect.set_options(timeout=PATIENCE)
            watch(page)
            for what in LOOKS:
                look(lab, page, what)
            browser.close()
        finally:
            lab.end()
    print(f"{results['ok']} passed, {results['not ok']} failed")
    sys.exit(results["not ok"] > 0)


main()
