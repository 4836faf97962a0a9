"""Tests the page in a browser. Started by `run`."""

import os
import pathlib
import re
import shutil
import signal
import socket
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
    """A daemon, its commands and the web server."""

    def __init__(self, work, slotd, **settings):
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
            # A time zone where it is past 13:00, so that the run does not cross midnight, when the
            # history begins.
            TZ=f"RUN{time.gmtime().tm_hour - 13:+d}")
        self.env.update(settings)
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


# The checks. They run in order, on the same page.

def address_opens_the_page_and_hides_the_token(lab, page):
    page.goto(lab.address)
    expect(page.locator("#connection")).to_have_text("connected")
    assert "token" not in page.url, page.url
    page.reload()
    expect(page.locator("#connection")).to_have_text("connected")


def address_works_only_once(lab, page):
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


def cancel_asks_for_confirmation(lab, page):
    job = lab.submit("-J", "doomed", "--wrap", "sleep 1000")
    cancel = row(page, "running", job).get_by_role("button", name="cancel")
    cancel.click()
    page.get_by_role("dialog").get_by_role("button", name="No").click()
    assert lab.run("squeue", "-h", "-o", "%t", "-j", job) == "R"
    cancel.click()
    confirm(page, f"Cancel job {job} (doomed)?")
    expect(row(page, "ended", job)).to_contain_text("CANCELLED")
    expect(page.locator("#said")).to_contain_text("cancel: done")


def confirmation_applies_to_its_own_dialog(lab, page):
    job = lab.submit("-H", "-J", "asked-twice", "--wrap", "true")
    cancel = row(page, "waiting", job).get_by_role("button", name="cancel")
    # The first dialog is closed, and the second is opened before the page is notified of that.
    cancel.evaluate("button => { button.click(); document.querySelector('dialog[open]').close(); button.click(); }")
    confirm(page, f"Cancel job {job} (asked-twice)?")
    expect(row(page, "ended", job)).to_contain_text("CANCELLED")


def html_in_a_job_name_is_escaped(lab, page):
    job = lab.submit("-H", "-J", EVIL, "--wrap", "true")
    expect(row(page, "waiting", job)).to_contain_text(EVIL)
    row(page, "waiting", job).get_by_role("link").click()
    expect(page.locator("#job-title")).to_contain_text(EVIL)
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("group", name="Actions").get_by_role("button", name="cancel").click()
    confirm(page, EVIL)
    expect(page.locator("#job dl")).to_contain_text("CANCELLED")
    go(page, "Queue")


def change_touches_only_its_row(lab, page):
    jobs = [lab.submit("-H", "-J", f"still-{n}", "--wrap", "true") for n in range(5)]
    expect(row(page, "waiting", jobs[-1])).to_contain_text("still-4")
    page.evaluate("""() => {
        window.touched = new Set();
        new MutationObserver((changes) => changes.forEach((change) => {
            const element = change.target.nodeType === Node.ELEMENT_NODE ? change.target : change.target.parentElement;
            window.touched.add(element?.closest("tr")?.dataset.job ?? "elsewhere");
        })).observe(document.getElementById("waiting"), { subtree: true, childList: true, attributes: true, characterData: true });
    }""")
    lab.run("scontrol", "update", f"jobid={jobs[2]}", "timelimit=5", f"name={EVIL}")
    expect(row(page, "waiting", jobs[2])).to_contain_text(EVIL)
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("[...window.touched]") == [jobs[2]], page.evaluate("[...window.touched]")
    lab.run("scancel", *jobs)
    expect(row(page, "waiting", jobs[2])).to_have_count(0)
    expect(row(page, "ended", jobs[2])).to_contain_text(EVIL)


def two_pages_agree(lab, page):
    other = page.context.new_page()
    other.goto(page.url)
    job = lab.submit("-H", "-J", "for-both", "--wrap", "true")
    for one in (page, other):
        expect(row(one, "waiting", job)).to_contain_text("for-both")
    row(other, "waiting", job).get_by_role("button", name="cancel").click()
    confirm(other, "for-both")
    for one in (page, other):
        expect(row(one, "ended", job)).to_contain_text("CANCELLED")
        expect(row(one, "waiting", job)).to_have_count(0)
    other.close()


def disconnected_page_catches_up(lab, page):
    job = lab.submit("-H", "-J", "missed", "--wrap", "true")
    expect(row(page, "waiting", job)).to_contain_text("missed")
    address = page.url.split("/")[2]
    cookie = "; ".join(f"{one['name']}={one['value']}" for one in page.context.cookies())
    key = page.evaluate("localStorage.getItem('slotd-key')")
    # One stream over the limit ends the oldest, which is the page's own.
    streams = []
    for _ in range(16):
        streams.append(socket.create_connection(address.split(":")))
        head = f"GET /api/events HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\nX-Slotd-Key: {key}\r\n\r\n"
        streams[-1].sendall(head.encode())
    expect(page.locator("#connection")).to_have_text("the server does not answer")
    lab.run("scancel", job)
    fresh = lab.submit("-H", "-J", "meanwhile", "--wrap", "true")
    expect(page.locator("#connection")).to_have_text("connected")
    expect(row(page, "waiting", fresh)).to_contain_text("meanwhile")
    expect(row(page, "waiting", job)).to_have_count(0)
    expect(row(page, "ended", job)).to_contain_text("CANCELLED")
    for stream in streams:
        stream.close()
    lab.run("scancel", fresh)


def long_queue_is_shown_on_demand(lab, page):
    array = lab.submit("-H", "-a", "1-230", "-J", "long", "--wrap", "true")
    # Each task becomes a record of its own.
    lab.run("scontrol", "update", "jobid=" + ",".join(f"{array}_{task}" for task in range(1, 231)), "comment=own")
    more = page.get_by_role("button", name="Show more")
    expect(page.locator("#waiting-count")).to_have_text("230")
    expect(more).to_be_visible()
    page.locator(f"#waiting tr[data-array='{array}']").get_by_role("button", name="[…]").click()
    expect(page.locator("#waiting tr.inside")).to_have_count(200)
    more.click()
    expect(page.locator("#waiting tr.inside")).to_have_count(230)
    expect(more).to_be_hidden()
    lab.run("scancel", array)
    expect(page.locator("#waiting-count")).to_have_text("0")


def array_is_one_row_that_expands(lab, page):
    array = lab.submit("-a", "1-6%1", "-J", "many", "--wrap", "until [ -e all ]; do sleep 0.1; done")
    group = page.locator(f"#waiting tr[data-array='{array}']")
    expect(group).to_contain_text("0 of 6 done, 1 running, 5 pending")
    expect(row(page, "waiting", f"{array}_[2-6%1]")).to_have_count(0)
    group.get_by_role("button", name="[…]").click()
    expect(row(page, "waiting", f"{array}_[2-6%1]")).to_have_count(1)
    (lab.work / "all").touch()
    expect(page.locator(f"#ended tr[data-array='{array}']")).to_contain_text("6 tasks ended")


def form_submits_a_job(lab, page):
    go(page, "Submit")
    form = page.locator("form#submit")
    form.get_by_label("Name", exact=True).fill("it's mine")
    form.get_by_label("CPUs per task").fill("2")
    form.get_by_label("More options").fill("--comment='by form'")
    form.locator("textarea").fill("#!/bin/sh\necho by $SLURM_JOB_NAME\n")
    line = "sbatch '--job-name=it'\\''s mine' --cpus-per-task=2 '--comment=by form' <<'EOF'\n#!/bin/sh\necho by $SLURM_JOB_NAME\nEOF\n"
    expect(page.locator("#line")).to_have_text(line)
    form.get_by_role("button", name="Submit").click()
    expect(page.locator("#said")).to_contain_text("Submitted job")
    page.get_by_role("link", name="show job").click()
    expect(page.locator("#job dl")).to_contain_text("COMPLETED")
    expect(page.get_by_role("region", name="Output")).to_have_text("by it's mine\n")
    page.locator("#job summary").first.click()
    expect(page.locator("#job pre[aria-label='Script']")).to_contain_text("echo by $SLURM_JOB_NAME")
    go(page, "Submit")
    form.get_by_label("CPUs per task").fill("many")
    form.get_by_role("button", name="Submit").click()
    expect(page.get_by_role("alert")).to_contain_text("cpus-per-task")


def log_is_followed_from_its_end(lab, page):
    wrap = "seq 300000; echo >written; until [ -e go ]; do sleep 0.1; done; echo more; echo wrong >&2; until [ -e done ]; do sleep 0.1; done"
    os.mkfifo(lab.work / "written")
    job = lab.submit("-o", "log-%j", "-e", "err-%j", "--wrap", wrap)
    # A page that opens earlier starts at an earlier end, and fetches more.
    lab.run("timeout", "60", "cat", "written")
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    out = page.locator("#job .output").first.locator("pre")
    expect(out).to_contain_text("\n300000\n")
    assert len(out.text_content()) < 100_000, "more than the end was fetched"
    (lab.work / "go").touch()
    expect(out).to_contain_text("300000\nmore\n")
    expect(page.locator("#job .output").last.locator("pre")).to_have_text("wrong\n")
    assert out.evaluate("pre => pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 2"), "the view is not at the end"
    page.get_by_role("button", name="Show earlier output").first.click()
    expect(out).to_contain_text("\n260000\n")
    (lab.work / "done").touch()
    expect(page.locator("#job dl")).to_contain_text("COMPLETED")


def job_plots_its_usage(lab, page):
    wrap = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); until [ -e plotted ]; do sleep 0.1; done"
    job = lab.submit("--wrap", wrap)
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    memory = page.locator("#job [data-plot=Memory]")
    expect(memory).to_contain_text("Memory: peak ")
    expect(memory.locator("svg")).to_have_attribute("aria-label", re.compile("^Memory: peak "))
    expect(memory.locator("path")).to_have_attribute("d", re.compile(r"v-[1-9]"))
    (lab.work / "plotted").touch()
    expect(page.locator("#job dl")).to_contain_text("COMPLETED")
    expect(memory).to_be_visible()


def gpus_of_job_and_host_are_plotted(lab, page):
    job = lab.submit("-G", "1", "--wrap", "until [ -e computed ]; do sleep 0.1; done")
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    gpus = page.locator("#job [data-plot=GPUs]")
    expect(gpus).to_contain_text("GPUs in use: 0.")
    expect(gpus.locator("path")).to_have_attribute("d", re.compile(r"v-[1-9]"))
    expect(page.locator("#job [data-plot='GPU memory']")).to_contain_text("GPU memory: peak ")
    go(page, "Queue")
    page.get_by_text("Host usage in the last hour").click()
    for name in ("CPUs", "Memory", "GPU 0"):
        chart = page.locator(f"#host-use [data-plot='{name}']")
        expect(chart.locator("path")).to_have_attribute("d", re.compile(r"v-[1-9]"))
    expect(page.locator("#host-use [data-plot='GPU 0']")).to_contain_text("GPU 0: 60% busy")
    go(page, "Timeline")
    expect(page.locator("#timeline-use [data-plot=CPUs]")).to_contain_text("CPUs in use: ")
    (lab.work / "computed").touch()
    go(page, "Queue")
    expect(row(page, "ended", job)).to_contain_text("COMPLETED")


def failed_job_is_retried(lab, page):
    job = lab.submit("-J", "unlucky", "--wrap", "exit 3")
    row(page, "ended", job).get_by_role("button", name="retry").click()
    confirm(page, f"Resubmit job {job} (unlucky)?")
    expect(page.locator("#said")).to_contain_text("retry: done")
    page.locator("#said a").click()
    expect(page.locator("#job-title")).to_contain_text("unlucky")
    expect(page.locator("#job dl")).to_contain_text("FAILED")
    assert page.locator("#job-title").text_content() != f"Job {job} unlucky"
    expect(page.get_by_role("list", name="Why")).to_contain_text("FAILED")


def pending_job_shows_its_reason_and_can_be_edited(lab, page):
    job = lab.submit("-H", "-t", "10", "-J", "draft", "--wrap", "true")
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    why = page.get_by_role("list", name="Why")
    expect(why).to_contain_text(f"Job {job} (draft) is PENDING")
    expect(why).to_contain_text("To change this: ")
    page.get_by_role("button", name="Edit options and script").click()
    text = page.get_by_label("Options and script", exact=True)
    expect(text).to_have_value(re.compile("#SBATCH --time=00:10:00"))
    shown = text.input_value()
    text.fill(shown.replace("00:10:00", "soon"))
    page.get_by_role("button", name="Save changes").click()
    confirm(page, f"Change job {job}?")
    expect(page.get_by_role("alert")).to_contain_text("soon")
    text.fill(shown.replace("00:10:00", "00:20:00"))
    page.get_by_role("button", name="Save changes").click()
    confirm(page, f"Change job {job}?")
    expect(page.locator("#said")).to_contain_text(f"changed job {job}")
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
    expect(page.locator("#found")).to_have_text("1 job")
    expect(page.locator("#history")).to_contain_text("COMPLETED")
    form.get_by_label("From").fill("soon")
    form.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("Invalid time specification")


def timeline_shows_past_and_planned_jobs(lab, page):
    runs = lab.submit("-c", "2", "-t", "10", "--wrap", "until [ -e over ]; do sleep 0.1; done")
    planned = lab.submit("-c", "1", "-t", "5", "--wrap", "true")
    go(page, "Timeline")
    expect(page.locator(f"#timeline a[data-job='{runs}'] rect[data-state=RUNNING]")).to_have_count(2)
    expect(page.locator(f"#timeline a[data-job='{planned}'] rect.planned")).to_have_count(1)
    expect(page.locator("#timeline rect[data-state=COMPLETED]").first).to_be_attached()
    (lab.work / "over").touch()
    expect(page.locator(f"#timeline a[data-job='{runs}'] rect[data-state=COMPLETED]")).to_have_count(2)


def page_works_with_the_keyboard_only(lab, page):
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


def views_fit_a_phone_screen(lab, page):
    lab.submit("-H", "-J", "n" * 200, "--wrap", "true")
    page.set_viewport_size({"width": 320, "height": 640})
    for view in views(page):
        width = page.evaluate("document.documentElement.scrollWidth")
        picture(page, f"phone-{view}")
        assert width <= 320, f"{view} is {width} pixels wide"
    page.set_viewport_size({"width": 1280, "height": 800})


def axe_finds_no_violations_in_light_and_dark_mode(lab, page):
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        backs = set()
        for view in views(page):
            backs.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            picture(page, f"{scheme}-{view}")
            found = Axe().run(page).response["violations"]
            violations = [f"{fault['id']}: {node['html'][:120]}" for fault in found for node in fault["nodes"][:2]]
            assert not violations, f"{scheme} {view}: {violations}"
        assert backs == {"rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)"}, backs


def page_reconnects_to_a_restarted_daemon(lab, page):
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


def page_reported_no_errors(lab, page):
    assert not page.faults, page.faults


CHECKS = (
    address_opens_the_page_and_hides_the_token,
    address_works_only_once,
    jobs_start_and_end_without_a_reload,
    cancel_asks_for_confirmation,
    confirmation_applies_to_its_own_dialog,
    html_in_a_job_name_is_escaped,
    change_touches_only_its_row,
    two_pages_agree,
    disconnected_page_catches_up,
    long_queue_is_shown_on_demand,
    array_is_one_row_that_expands,
    form_submits_a_job,
    log_is_followed_from_its_end,
    job_plots_its_usage,
    gpus_of_job_and_host_are_plotted,
    failed_job_is_retried,
    pending_job_shows_its_reason_and_can_be_edited,
    history_is_searched,
    timeline_shows_past_and_planned_jobs,
    page_works_with_the_keyboard_only,
    views_fit_a_phone_screen,
    axe_finds_no_violations_in_light_and_dark_mode,
    page_reconnects_to_a_restarted_daemon,
    page_reported_no_errors,
)


def picture(page, name):
    if len(sys.argv) > 2:
        page.screenshot(path=pathlib.Path(sys.argv[2]) / f"{name}.png", full_page=True)


def watch(page):
    """Records the errors of the page. Requests that the server refuses with a message do not count."""
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
        # Jobs of this check would occupy the CPUs that later checks need.
        subprocess.run(["scancel", "--me"], env=lab.env)
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
            page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
            page.set_default_timeout(PATIENCE)
            expect.set_options(timeout=PATIENCE)
            watch(page)
            for what in CHECKS:
                look(lab, page, what)
            browser.close()
        finally:
            lab.end()
    print(f"{results['ok']} passed, {results['not ok']} failed")
    sys.exit(results["not ok"] > 0)


if __name__ == "__main__":
    main()
