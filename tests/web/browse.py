"""Tests the page in a browser. Started by `run`."""

import json
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
COMMANDS = ("slotd", "sbatch", "scancel", "squeue", "sacct", "sinfo", "scontrol", "scrontab")
CONFIG = """[[license]]
name = "matlab"
count = 2
"""
# The path of a plot with more than one value.
DRAWN = re.compile(r"M[\d.]+ [\d.]+L[\d.]+ [\d.]+")
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
    return page.locator(f"#{where} .row[data-job='{job}']")


def act(page, where, job, action):
    """Performs an action from the menu of a row."""
    row(page, where, job).get_by_role("button", name=f"actions of job {job}").click()
    page.locator(f"#menu [data-action={action}]").click()


def is_over(page, job, state):
    expect(row(page, "ended", job)).to_have_attribute("data-state", state)


def badge_is(page, words):
    expect(page.locator("#job-badge")).to_have_text(words)


def go(page, view):
    page.get_by_role("navigation").get_by_role("link", name=view).click()


def confirm(page, words):
    expect(page.get_by_role("dialog")).to_contain_text(words)
    page.locator("#confirm-yes").click()


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
    expect(row(page, "pending", waits)).to_contain_text(f"job {job}")
    expect(row(page, "pending", waits).locator(".at")).to_have_text(re.compile(r"\d\d:\d\d|–"))
    (lab.work / "first").touch()
    is_over(page, job, "COMPLETED")
    expect(row(page, "running", waits)).to_contain_text("of 5m")
    (lab.work / "second").touch()
    is_over(page, waits, "COMPLETED")


def cancel_asks_for_confirmation(lab, page):
    job = lab.submit("-J", "doomed", "--wrap", "sleep 1000")
    act(page, "running", job, "cancel")
    expect(page.locator("#confirm-no")).to_be_focused()
    page.locator("#confirm-no").click()
    assert lab.run("squeue", "-h", "-o", "%t", "-j", job) == "R"
    act(page, "running", job, "cancel")
    confirm(page, f"Cancel job {job} (doomed)?")
    is_over(page, job, "CANCELLED")
    expect(page.locator("#said")).to_contain_text(f"Cancelled job {job}")


def confirmation_applies_to_its_own_dialog(lab, page):
    job = lab.submit("-H", "-J", "asked-twice", "--wrap", "true")
    row(page, "pending", job).get_by_role("button", name="actions").click()
    # The first dialog is closed, and the second is opened before the page is notified of that.
    page.locator("#menu [data-action=cancel]").evaluate("button => { button.click(); document.querySelector('dialog[open]').close(); button.click(); }")
    confirm(page, f"Cancel job {job} (asked-twice)?")
    is_over(page, job, "CANCELLED")


def time_limit_of_a_running_job_is_changed(lab, page):
    job = lab.submit("-t", "10", "-J", "longer", "--wrap", "until [ -e longer ]; do sleep 0.1; done")
    expect(row(page, "running", job)).to_contain_text("of 10m")
    act(page, "running", job, "limit")
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_label("Time limit")
    expect(field).to_have_value("00:10:00")
    field.fill("soon")
    field.press("Enter")
    # The dialog shows the error of the command.
    expect(dialog.get_by_role("alert")).to_contain_text("Invalid TimeLimit value: soon")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill("+10")
    dialog.get_by_role("button", name="Change the limit").click()
    expect(dialog).to_be_hidden()
    expect(row(page, "running", job)).to_contain_text("of 20m")
    act(page, "running", job, "limit")
    dialog.get_by_role("button", name="Keep").click()
    expect(dialog).to_be_hidden()
    assert lab.run("squeue", "-h", "-o", "%l", "-j", job) == "20:00"
    (lab.work / "longer").touch()
    is_over(page, job, "COMPLETED")


def pending_job_names_the_job_ahead_of_it(lab, page):
    runs = lab.submit("-c", "2", "-t", "5", "--wrap", "until [ -e ahead ]; do sleep 0.1; done")
    expect(row(page, "running", runs)).to_be_visible()
    first, second, third = (lab.submit("-c", "2", "-t", "5", "-J", f"line-{n}", "--wrap", "true") for n in range(3))
    expect(row(page, "pending", second).locator(".why")).to_have_text(f"Behind job {first}")
    expect(row(page, "pending", third).locator(".why")).to_have_text(f"Behind job {first} and 1 more")
    expect(row(page, "pending", third).locator(".why a")).to_have_attribute("href", f"#/job/{first}")
    (lab.work / "ahead").touch()
    for job in (runs, first, second, third):
        is_over(page, job, "COMPLETED")


def reservations_licenses_and_recurring_jobs_are_shown(lab, page):
    user = lab.run("id", "-un")
    lab.run("scontrol", "create", "reservation", "ReservationName=course", "StartTime=now+30minutes", "Duration=30", "CoreCnt=1", f"Users={user}")
    subprocess.run(["scrontab", "-"], input="#SCRON -J weekly\n0 5 * * 1 true\n", env=lab.env, check=True, text=True)
    job = lab.submit("-L", "matlab:1", "-t", "5", "--wrap", "until [ -e licensed ]; do sleep 0.1; done")
    reserved = page.locator("#reserved")
    expect(reserved).to_contain_text("matlab 1 of 2 in use")
    expect(reserved).to_contain_text(re.compile(r"course reserved from \S+.* to \S+.*: 1 CPU, for "))
    recurring = page.locator("#pending .row").filter(has_text="weekly")
    expect(recurring).to_contain_text(re.compile("Next run at .*every Monday at 05:00"))
    go(page, "Timeline")
    block = page.locator("#timeline [data-reservation=course]")
    expect(block).to_have_attribute("aria-label", re.compile("^Reservation course, reserved from .*1 CPU"))
    go(page, "Submit")
    for hint, words in (("licenses", "matlab: 1 of 2 free"), ("constraint", "avx512"), ("reservation", "course")):
        expect(page.locator(f"#hint-{hint}")).to_contain_text(words)
    lab.run("scontrol", "delete", "ReservationName=course")
    lab.run("scrontab", "-r")
    expect(page.locator("#field-reservation")).to_be_hidden()
    go(page, "Queue")
    expect(reserved).not_to_contain_text("course")
    expect(recurring).to_have_count(0)
    (lab.work / "licensed").touch()
    is_over(page, job, "COMPLETED")


def running_job_shows_its_last_line(lab, page):
    job = lab.submit("--wrap", f"printf 'begun\\n\\033[32mstep 7\\033[0m {EVIL}\\n'; until [ -e lined ]; do sleep 0.1; done")
    expect(row(page, "running", job).locator(".why")).to_have_text(f"step 7 {EVIL}")
    (lab.work / "lined").touch()
    is_over(page, job, "COMPLETED")


def environment_and_source_have_tabs(lab, page):
    tree = lab.work / "tree"
    tree.mkdir()
    git = ["git", "-C", tree, "-c", "user.name=a", "-c", "user.email=a@b"]
    (tree / "train.py").write_text(f"lr = 1\n{EVIL}\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], env=lab.env, check=True)
    (tree / "train.py").write_text(f"lr = 2\n{EVIL}\n")
    job = lab.submit("-W", "-D", str(tree), "-J", "traced", "--wrap", "true")
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    page.get_by_role("tab", name="Environment").click()
    variables = page.locator(".variables")
    expect(variables).to_contain_text("HOME")
    expect(variables).not_to_contain_text("hidden-value")
    page.get_by_role("searchbox", name="Filter the environment").fill("secret")
    expect(variables.locator("div:not([hidden])")).to_have_count(1)
    page.get_by_role("button", name="Show SECRET_TOKEN").click()
    expect(variables).to_contain_text("hidden-value")
    page.get_by_role("tab", name="Source").click()
    expect(page.locator("#job details summary")).to_contain_text("train.py +1 −1")
    expect(page.locator("#job .d-removed").last).to_have_text("-lr = 1\n")
    expect(page.locator("#job pre .d-added")).to_have_text("+lr = 2\n")
    expect(page.locator("#job .diff")).to_contain_text(EVIL)
    assert page.locator("main img, main script").count() == 0
    go(page, "Queue")


def failed_job_shows_the_last_line_of_its_errors(lab, page):
    job = lab.submit("-J", "broken", "-e", "broken.err", "--wrap", f"echo output; printf 'first\\n\\033[31mNo module {EVIL}\\033[0m\\n' >&2; exit 3")
    is_over(page, job, "FAILED")
    expect(row(page, "ended", job).locator(".why")).to_have_text(f"Failed Exit code 3 No module {EVIL}")


def jobs_that_wait_for_a_job_are_listed(lab, page):
    job = lab.submit("-J", "first-step", "--wrap", "until [ -e stepped ]; do sleep 0.1; done")
    other = lab.submit("-J", f"next-{EVIL}", "-d", f"afterok:{job}", "--wrap", "true")
    expect(row(page, "pending", other).locator(".why")).to_have_text(f"After job {job} completes")
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    waiting = page.get_by_role("list", name="Waiting for this job")
    expect(waiting.get_by_role("listitem")).to_have_count(1)
    expect(waiting).to_contain_text(f"{other} next-{EVIL}")
    # It no longer waits when this job has ended.
    (lab.work / "stepped").touch()
    badge_is(page, "Completed")
    expect(waiting).to_be_hidden()
    go(page, "Queue")
    is_over(page, other, "COMPLETED")


def page_of_an_array_is_not_the_page_of_a_task(lab, page):
    array = lab.submit("-a", "1-4%1", "-J", "swept", "--wrap", "until [ -e swept ]; do sleep 0.1; done")
    waits = lab.submit("-d", f"afterany:{array}", "-J", "after-all", "--wrap", "true")
    # A dependency on all tasks names the array.
    expect(row(page, "pending", waits).locator(".why a")).to_have_attribute("href", f"#/job/{array}")
    page.locator(f".row[data-array='{array}'] .name a").click()
    expect(page.locator("#job-number")).to_have_text(f"Array {array}")
    expect(page.get_by_role("list", name="Why")).to_contain_text("An array of 4 tasks: ")
    expect(page.get_by_role("list", name="Waiting for this array")).to_contain_text("after-all")
    page.get_by_role("tabpanel", name="Tasks").get_by_role("link", name=f"{array}_1").click()
    expect(page.locator("#job-number")).to_have_text(f"Array {array} / Task 1")
    page.locator("#job-number").get_by_role("link").click()
    # Its actions are those on the whole array.
    expect(page.locator("#job-number")).to_have_text(f"Array {array}")
    page.locator("#job-actions [data-action=cancel]").click()
    confirm(page, f"Cancel job {array} (swept)?")
    badge_is(page, "Cancelled")
    go(page, "Queue")
    is_over(page, waits, "COMPLETED")


def pending_jobs_say_what_they_wait_for(lab, page):
    user = lab.run("id", "-un")
    runs = lab.submit("-c", "2", "-t", "5", "--wrap", "until [ -e freed ]; do sleep 0.1; done")
    expect(row(page, "running", runs)).to_be_visible()
    lab.run("scontrol", "create", "reservation", "ReservationName=repairs", "StartTime=now+30minutes", "Duration=30", "Nodes=ALL", "Flags=MAINT", f"Users={user}")
    long = lab.submit("-t", "50", "-J", "too-long", "--wrap", "true")
    array = lab.submit("-H", "-a", "1-3", "-J", "held-array", "--wrap", "true")
    expect(row(page, "pending", long).locator(".why")).to_have_text(re.compile("Too long to end before repairs at "))
    # An array of which nothing has started shows its reason.
    expect(page.locator(f".row[data-array='{array}'] .why")).to_have_text("Held by its user")
    lab.run("scontrol", "delete", "ReservationName=repairs")
    lab.run("scancel", array, long)
    (lab.work / "freed").touch()
    is_over(page, runs, "COMPLETED")


def html_in_a_job_name_is_escaped(lab, page):
    job = lab.submit("-H", "-J", EVIL, "--wrap", "true")
    expect(row(page, "pending", job)).to_contain_text(EVIL)
    row(page, "pending", job).get_by_role("link").first.click()
    expect(page.locator("#job-title")).to_contain_text(EVIL)
    assert page.locator("main img, main script").count() == 0
    page.locator("#job-actions [data-action=cancel]").click()
    confirm(page, EVIL)
    badge_is(page, "Cancelled")
    go(page, "Queue")


def change_touches_only_its_row(lab, page):
    jobs = [lab.submit("-H", "-J", f"still-{n}", "--wrap", "true") for n in range(5)]
    expect(row(page, "pending", jobs[-1])).to_contain_text("still-4")
    page.evaluate("""() => {
        window.touched = new Set();
        new MutationObserver((changes) => changes.forEach((change) => {
            const element = change.target.nodeType === Node.ELEMENT_NODE ? change.target : change.target.parentElement;
            window.touched.add(element?.closest(".row")?.dataset.job ?? "elsewhere");
        })).observe(document.getElementById("pending"), { subtree: true, childList: true, attributes: true, characterData: true });
    }""")
    lab.run("scontrol", "update", f"jobid={jobs[2]}", "timelimit=5", f"name={EVIL}")
    expect(row(page, "pending", jobs[2])).to_contain_text(EVIL)
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("[...window.touched]") == [jobs[2]], page.evaluate("[...window.touched]")
    lab.run("scancel", *jobs)
    expect(row(page, "pending", jobs[2])).to_have_count(0)
    expect(row(page, "ended", jobs[2])).to_contain_text(EVIL)


def two_pages_agree(lab, page):
    other = page.context.new_page()
    other.goto(page.url)
    job = lab.submit("-H", "-J", "for-both", "--wrap", "true")
    for one in (page, other):
        expect(row(one, "pending", job)).to_contain_text("for-both")
    act(other, "pending", job, "cancel")
    confirm(other, "for-both")
    for one in (page, other):
        is_over(one, job, "CANCELLED")
        expect(row(one, "pending", job)).to_have_count(0)
    other.close()


def disconnected_page_catches_up(lab, page):
    job = lab.submit("-H", "-J", "missed", "--wrap", "true")
    expect(row(page, "pending", job)).to_contain_text("missed")
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
    expect(row(page, "pending", fresh)).to_contain_text("meanwhile")
    expect(row(page, "pending", job)).to_have_count(0)
    is_over(page, job, "CANCELLED")
    for stream in streams:
        stream.close()
    lab.run("scancel", fresh)


def long_queue_is_shown_on_demand(lab, page):
    array = lab.submit("-H", "-a", "1-230", "-J", "long", "--wrap", "true")
    # Each task becomes a record of its own.
    lab.run("scontrol", "update", "jobid=" + ",".join(f"{array}_{task}" for task in range(1, 231)), "comment=own")
    more = page.get_by_role("button", name="Show 30 more pending jobs")
    expect(page.locator("#pending-count")).to_have_text("230")
    expect(more).to_be_visible()
    group = page.locator(f"#pending .row[data-array='{array}']")
    group.get_by_role("button", name="tasks of array").click()
    last = row(page, "pending", f"{array}_229")
    # Only the rows near the window are elements.
    more.scroll_into_view_if_needed()
    expect(row(page, "pending", f"{array}_199")).to_be_visible()
    assert 20 < page.locator("#pending .row").count() < 120, page.locator("#pending .row").count()
    more.click()
    expect(more).to_be_hidden()
    page.locator("#ended-count").scroll_into_view_if_needed()
    expect(last).to_be_visible()
    page.evaluate("scrollTo(0, 0)")
    lab.run("scancel", array)
    expect(page.locator("#pending-count")).to_have_text("0")


def filter_selects_from_the_whole_queue(lab, page):
    # A server of its own: once a page has loaded the whole queue, the server sends it to all pages.
    own = page.context.browser.new_context().new_page()
    own.goto(lab.web())
    array = lab.submit("-H", "-a", "1-230", "-J", "long", "--wrap", "true")
    lab.run("scontrol", "update", "jobid=" + ",".join(f"{array}_{task}" for task in range(1, 231)), "comment=own")
    lab.run("scontrol", "update", f"jobid={array}_229", "jobname=beyond")
    expect(own.locator("#chips button", has_text="Held")).to_have_text("Held 1+")
    own.locator("#filter").fill("beyond")
    expect(own.locator("#pending .row")).to_have_count(1)
    expect(own.locator("#pending .row")).to_contain_text("beyond")
    expect(own.locator("#matching")).to_have_text("1 job")
    own.context.close()
    lab.run("scancel", array)
    expect(page.locator("#pending-count")).to_have_text("0")


def array_is_one_row_that_expands(lab, page):
    array = lab.submit("-a", "1-6%1", "-J", "many", "--wrap", "until [ -e all ]; do sleep 0.1; done")
    # Its running and pending tasks are one row.
    group = page.locator(f".row[data-array='{array}']")
    expect(page.locator(f"#running .row[data-array='{array}']")).to_contain_text("0 of 6 done, 1 running")
    expect(group).to_have_count(1)
    expect(row(page, "running", f"{array}_[2-6%1]")).to_have_count(0)
    group.get_by_role("button", name="6 tasks").click()
    expect(row(page, "running", f"{array}_[2-6%1]")).to_have_count(1)
    (lab.work / "all").touch()
    expect(page.locator(f"#ended .row[data-array='{array}']")).to_contain_text("6 of 6 done")


def form_submits_a_job(lab, page):
    go(page, "Submit")
    form = page.locator("form#submit")
    form.get_by_label("Name", exact=True).fill("it's mine")
    form.get_by_label("CPUs per task").fill("2")
    form.get_by_label("More options").fill("--comment='by form'")
    form.locator("textarea").fill("#!/bin/sh\necho by $SLURM_JOB_NAME\n")
    options = " \\\n  ".join(["sbatch", "'--job-name=it'\\''s mine'", "--cpus-per-task=2", "'--comment=by form'", "<<'EOF'"])
    line = f"{options}\n#!/bin/sh\necho by $SLURM_JOB_NAME\nEOF\n"
    expect(page.locator("#line")).to_have_text(line)
    expect(page.locator("#prediction")).to_contain_text("With 2 CPUs in partition")
    form.get_by_role("button", name="Submit", exact=True).click()
    expect(page.locator("#said")).to_contain_text("Submitted job")
    page.get_by_role("link", name="show job").click()
    badge_is(page, "Completed")
    expect(page.get_by_role("region", name="Output")).to_have_text("by it's mine\n")
    page.get_by_role("tab", name="Script").click()
    expect(page.locator("#job pre[aria-label='Script']")).to_contain_text("echo by $SLURM_JOB_NAME")
    go(page, "Submit")
    form.get_by_label("CPUs per task").fill("many")
    # The prediction marks the field that is wrong.
    expect(form.get_by_label("CPUs per task")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#hint-cpus-per-task")).to_contain_text("many")
    expect(page.locator("#prediction")).to_contain_text("No prediction")
    form.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("cpus-per-task")
    form.get_by_label("CPUs per task").fill("2")
    expect(form.get_by_label("CPUs per task")).not_to_have_attribute("aria-invalid", "true")


def address_that_names_no_job_is_shown_as_it_is(lab, page):
    page.goto(page.url.split("#")[0] + "#/job/%F0")
    expect(page).to_have_title("job %F0 · slotd")
    expect(page.get_by_role("heading", name="Job %F0")).to_be_visible()


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
    badge_is(page, "Completed")


def job_plots_its_usage(lab, page):
    wrap = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); until [ -e plotted ]; do sleep 0.1; done"
    job = lab.submit("--wrap", wrap)
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    memory = page.locator("#job [data-plot=Memory]")
    expect(memory).to_contain_text(re.compile(r"\d MB of .*, peak \d"))
    expect(memory.locator("svg")).to_have_attribute("aria-label", re.compile("^Memory: .*, peak "))
    expect(memory.locator("path.edge")).to_have_attribute("d", DRAWN)
    # The values under the pointer replace the last ones, in all plots at the same time.
    memory.locator("svg").hover()
    for plot in ("Memory", "CPUs"):
        expect(page.locator(f"#job [data-plot={plot}] figcaption")).to_contain_text(" at ")
    page.locator("#job-title").hover()
    expect(memory).to_contain_text(", peak ")
    (lab.work / "plotted").touch()
    badge_is(page, "Completed")
    expect(memory).to_be_visible()


def gpus_of_job_and_host_are_plotted(lab, page):
    job = lab.submit("-G", "1", "--wrap", "until [ -e computed ]; do sleep 0.1; done")
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    gpus = page.locator("#job [data-plot=GPUs]")
    expect(gpus).to_contain_text(re.compile(r"0\.\d\d busy of 1"))
    expect(gpus.locator("path.edge")).to_have_attribute("d", DRAWN)
    expect(page.locator("#job [data-plot='GPU memory']")).to_contain_text(", peak ")
    go(page, "Queue")
    for name in ("CPUs", "Memory", "GPU 0"):
        expect(page.locator(f"#host [data-card='{name}'] path.edge")).to_have_attribute("d", re.compile("^M"))
    card = page.locator("#host [data-card='GPU 0']")
    expect(card).to_contain_text("60 % busy")
    expect(card).to_contain_text("of 39.1 GB")
    # The card names the job that has the GPU.
    expect(card.get_by_role("link")).to_have_attribute("href", f"#/job/{job}")
    go(page, "Timeline")
    expect(page.locator("#timeline-use [data-plot=CPUs] path.edge")).to_have_attribute("d", re.compile("^M"))
    (lab.work / "computed").touch()
    go(page, "Queue")
    is_over(page, job, "COMPLETED")


def failed_job_is_retried(lab, page):
    job = lab.submit("-J", "unlucky", "--wrap", "exit 3")
    act(page, "ended", job, "retry")
    confirm(page, f"Submit job {job} (unlucky) again?")
    expect(page.locator("#said")).to_contain_text(f"Submitted job {job} again")
    page.locator("#said a").click()
    expect(page.locator("#job-title")).to_contain_text("unlucky")
    badge_is(page, "Failed")
    assert page.locator("#job-number").text_content() != f"Job {job}"
    expect(page.get_by_role("list", name="Why")).to_contain_text("It ended at ")


def pending_job_shows_its_reason_and_can_be_edited(lab, page):
    job = lab.submit("-H", "-t", "10", "-J", "draft", "--wrap", "true")
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    why = page.get_by_role("list", name="Why")
    badge_is(page, "Held")
    expect(why).to_contain_text("Submitted at ")
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
    expect(page.locator("#job .facts")).to_contain_text("20m")
    expect(text).to_be_hidden()
    page.locator("#job-actions [data-action=cancel]").click()
    confirm(page, f"Cancel job {job}")
    badge_is(page, "Cancelled")
    expect(page.get_by_role("button", name="Edit options and script")).to_be_hidden()


def history_is_searched(lab, page):
    go(page, "History")
    page.get_by_role("tab", name="All jobs").click()
    form = page.locator("form#search")
    form.get_by_label("Name", exact=True).fill("second")
    form.get_by_role("button", name="Search").click()
    expect(page.locator("#found")).to_have_text("1 job")
    expect(page.locator("#history")).to_contain_text("Completed")
    form.get_by_label("From").fill("soon")
    form.get_by_role("button", name="Search").click()
    expect(page.get_by_role("alert")).to_contain_text("Invalid time specification")


def history_has_figures_by_name_and_by_day(lab, page):
    jobs = [lab.submit("-J", f"name-{n}", "--wrap", "true") for n in range(12)]
    lab.submit("-W", "-d", f"afterany:{':'.join(jobs)}", "-J", "name-last", "--wrap", "true")
    page.get_by_role("tab", name="By name").click()
    page.get_by_role("button", name="Today").click()
    page.get_by_role("button", name="7 days").click()
    expect(page.locator("#failed")).to_have_text("")
    expect(page.locator("#figures")).to_contain_text(re.compile(r"\d+ completed, \d+ failed"))
    page.get_by_role("button", name="Show all").click()
    expect(page.locator("#names tr").filter(has_text="unlucky")).to_contain_text("2")
    expect(page.locator("#days svg").last).to_be_visible()
    expect(page.locator("#days rect[fill='var(--completed)'][height]").last).to_be_visible()


def timeline_shows_past_and_planned_jobs(lab, page):
    runs = lab.submit("-c", "2", "-t", "10", "--wrap", "until [ -e over ]; do sleep 0.1; done")
    planned = lab.submit("-c", "1", "-t", "5", "--wrap", "true")
    go(page, "Timeline")
    expect(page.locator(f"#timeline a[data-job='{runs}'] rect[data-state=RUNNING]")).to_have_count(1)
    # Adjacent CPUs of one job are one block.
    expect(page.locator(f"#timeline a[data-job='{runs}']")).to_have_attribute("data-lanes", "cpu 0 to cpu 1")
    expect(page.locator(f"#timeline a[data-job='{runs}'] rect.rest")).to_have_attribute("fill", "url(#hatch)")
    expect(page.locator(f"#timeline a[data-job='{planned}'] rect.planned")).to_have_count(1)
    expect(page.locator("#timeline rect[data-state=COMPLETED]").first).to_be_attached()
    (lab.work / "over").touch()
    expect(page.locator(f"#timeline a[data-job='{runs}'] rect[data-state=COMPLETED]")).to_have_count(1)
    before = page.locator("#timeline-title").text_content()
    page.get_by_role("button", name="Zoom in").click()
    expect(page.locator("#timeline-title")).not_to_have_text(before)
    page.get_by_role("button", name="Earlier").click()
    page.get_by_role("button", name="Now").click()
    page.get_by_role("button", name="3 h", exact=True).click()


def page_works_with_the_keyboard_only(lab, page):
    job = lab.submit("-H", "-J", "by-key", "--wrap", "true")
    go(page, "Queue")
    expect(row(page, "pending", job)).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#filter")).to_be_focused()
    page.keyboard.type("name:by-key")
    expect(page.locator("#jobs .row")).to_have_count(1)
    page.locator("#main").focus()
    page.keyboard.press("j")
    focused = "document.activeElement.closest('.row')?.dataset.job"
    assert page.evaluate(focused) == job, page.evaluate(focused)
    page.keyboard.press("x")
    expect(page.locator("#selection")).to_contain_text("1 selected: 1 CPU")
    page.keyboard.press(".")
    menu = page.get_by_role("menu")
    expect(menu).to_be_visible()
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    assert page.evaluate(focused) == job, "the menu returns the focus"
    page.keyboard.press(".")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.dataset.action") == "cancel"
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator("#confirm-no")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator("#filter")).to_have_value("")
    page.keyboard.press("Escape")
    expect(page.locator("#selection")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next and previous job")
    page.keyboard.press("Escape")
    lab.run("scancel", job)
    is_over(page, job, "CANCELLED")


def change_of_a_selected_job_is_shown(lab, page):
    job = lab.submit("-H", "-J", "picked", "-c", "1", "--wrap", "true")
    row(page, "pending", job).get_by_role("checkbox").check()
    bar = page.locator("#selection")
    expect(bar).to_contain_text("1 selected: 1 CPU,")
    lab.run("scontrol", "update", f"jobid={job}", "numcpus=2", "name=picked-later")
    expect(row(page, "pending", job)).to_contain_text("picked-later")
    # It stays selected, and the total is the current one.
    expect(bar).to_contain_text("1 selected: 2 CPUs")
    expect(row(page, "pending", job).get_by_role("checkbox")).to_be_checked()
    lab.run("scancel", job)
    is_over(page, job, "CANCELLED")
    expect(bar).to_be_hidden()


def selected_jobs_are_held_and_undone_together(lab, page):
    jobs = [lab.submit("-d", "singleton", "-b", "now+1hour", "-J", f"pair-{n}", "--wrap", "true") for n in range(2)]
    page.locator("#filter").fill("pair-")
    for job in jobs:
        row(page, "pending", job).get_by_role("checkbox").check()
    bar = page.locator("#selection")
    expect(bar).to_contain_text("2 selected: 2 CPUs")
    bar.get_by_role("button", name="Hold 2 jobs").click()
    for job in jobs:
        expect(row(page, "pending", job)).to_have_attribute("data-kind", "held")
    expect(bar).to_be_hidden()
    page.get_by_role("button", name="Undo").click()
    for job in jobs:
        expect(row(page, "pending", job)).not_to_have_attribute("data-kind", "held")
    page.get_by_role("checkbox", name="select all jobs under Pending").check()
    bar.get_by_role("button", name="Cancel 2 jobs").click()
    confirm(page, "Cancel 2 jobs?")
    for job in jobs:
        is_over(page, job, "CANCELLED")
    page.locator("#filter").fill("")


def chips_count_and_filter(lab, page):
    job = lab.submit("-H", "-J", "chipped", "--wrap", "true")
    chip = page.locator("#chips").get_by_role("button", name="Held")
    expect(row(page, "pending", job)).to_be_visible()
    chip.click()
    expect(chip).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#jobs .row")).to_have_count(int(chip.locator("span").text_content()))
    page.locator("#chips").get_by_role("button", name="All").click()
    lab.run("scancel", job)


def output_is_coloured_and_searched(lab, page):
    job = lab.submit("-W", "-J", "colours", "--wrap", r"printf '\033[31mred\033[0m plain\n10%%\r100%% done\n<b>needle</b> needle\n\033]0;title\007end\n'")
    page.goto(page.url.split("#")[0] + f"#/job/{job}")
    out = page.get_by_role("region", name="Output")
    expect(out).to_have_text("red plain\n100% done\n<b>needle</b> needle\nend\n")
    expect(out.locator(".a-red")).to_have_text("red")
    search = page.get_by_role("searchbox", name="Search in the output")
    search.fill("needle")
    expect(page.locator(".search .count").first).to_have_text("2 of 2")
    search.press("Enter")
    expect(page.locator(".search .count").first).to_have_text("1 of 2")
    assert page.evaluate("CSS.highlights.get('found').size") == 2
    with page.expect_download() as saved:
        page.get_by_role("button", name="Download").click()
    assert pathlib.Path(saved.value.path()).read_text().startswith("\x1b[31mred"), "the file is saved as it is"
    go(page, "Queue")


def views(page):
    for view in ("Queue", "Timeline", "History", "Submit"):
        go(page, view)
        expect(page.locator("main > section:not([hidden]) h2")).to_be_attached()
        yield view
    go(page, "Queue")
    page.locator("#ended .name a").first.click()
    expect(page.locator("#job .facts")).to_contain_text("Partition")
    yield "Job"


def views_fit_screens_of_any_width(lab, page):
    lab.submit("-H", "-J", "n" * 200, "--wrap", "true")
    for width in (320, 390, 768, 1440):
        page.set_viewport_size({"width": width, "height": 844})
        for view in views(page):
            picture(page, f"{width}-{view}")
            found = page.evaluate("document.documentElement.scrollWidth")
            assert found <= width, f"{view} is {found} pixels wide at {width}"
    page.set_viewport_size({"width": 1280, "height": 800})


def names_have_room_in_a_narrow_window(lab, page):
    name = "preprocess-imagenet-tars-to-webdataset"
    job = lab.submit("-H", "-J", name, "--wrap", "true")
    go(page, "Queue")
    page.set_viewport_size({"width": 768, "height": 1024})
    link = row(page, "pending", job).get_by_role("link", name=name)
    expect(link).to_be_visible()
    assert link.evaluate("a => a.scrollWidth <= a.clientWidth"), "the name is cut"
    page.set_viewport_size({"width": 1280, "height": 800})
    lab.run("scancel", job)


def whole_queue(count, ended=0):
    """Returns the first event of a made-up queue."""
    def job(number):
        state = "RUNNING" if number <= 6 else "FAILED" if number > count - ended else "PENDING"
        now = int(time.time() * 1000)
        return {
            "id": number, "label": str(number), "target": str(number), "array": None, "tasks": 1, "name": f"job-{number} " + "x" * (number % 30), "user": "me",
            "partition": "cpu", "state": state, "reason": "Priority" if state == "PENDING" else "None", "why": "Priority", "priority": count - number, "cpus": 2,
            "mem_mb": 512, "gpus": 0, "cpu_ids": [], "gpu_ids": [], "submit": now, "start": None if state == "PENDING" else now, "end": now if state == "FAILED" else None,
            "expected": now + number * 1000, "limit_secs": 600, "elapsed_ms": 0 if state != "RUNNING" else None, "since": now if state == "RUNNING" else None,
            "later": False, "exit": "1:0", "restarts": 0, "recurs": None, "reservation": "", "used": None, "busy_cpus": None,
        }
    given = {"all": 16, "given": 4}
    host = {
        "name": "many", "cpus": given, "cpu_ids": list(range(16)), "mem_mb": given, "gpus": {"all": 0, "given": 0}, "gpu_names": {}, "gpu_mem_mb": {}, "load": 1.5,
        "elsewhere": None, "mem_used_mb": 3, "machine_mem_mb": 16, "troubles": [], "partitions": [], "features": [], "licenses": [], "reservations": [], "qos": [],
    }
    queue = {"host": host, "rows": {str(number): job(number) for number in range(1, count + 1)}, "waiting_count": count - ended - 6, "arrays": {}}
    return {"event": "whole", "now": int(time.time() * 1000), "queue": queue}


def answered_by(page, *events):
    """Opens a second page whose queue is made of these events."""
    other = page.context.new_page()
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
    other.route("**/api/events*", lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body))
    other.route("**/api/lines", lambda route: route.fulfill(json={}))
    other.route("**/api/history*", lambda route: route.fulfill(json={"now": 0, "jobs": [], "count": 0, "arrays": {}}))
    return other


def queue_of_70_jobs_is_short_on_a_phone(lab, page):
    other = answered_by(page, whole_queue(70, ended=25))
    other.set_viewport_size({"width": 390, "height": 844})
    other.goto(page.url.split("#")[0] + "#/queue")
    expect(other.locator("#pending .row").first).to_be_visible()
    height = other.evaluate("document.documentElement.scrollHeight")
    print(f"# height of 70 jobs at 390 pixels: {height}", flush=True)
    assert height <= 4000, height
    # The targets of a thumb.
    for button in (other.locator("#pending .menu").first, other.locator(".chip").first, other.locator("nav a").first):
        assert button.bounding_box()["height"] >= 43, button
    other.close()


def script_time(page, *events, until):
    """Returns the milliseconds for which scripts run until the page shows these events."""
    other = answered_by(page, *events)
    profile = other.context.new_cdp_session(other)
    profile.send("Profiler.enable")
    profile.send("Profiler.start")
    other.goto(page.url.split("#")[0] + "#/queue")
    expect(other.locator("#pending .row").first).to_contain_text(until)
    assert other.locator("#jobs .row").count() < 120, "only the rows near the window are elements"
    found = profile.send("Profiler.stop")["profile"]
    other.close()
    idle = {node["id"] for node in found["nodes"] if node["callFrame"]["functionName"] in ("(idle)", "(program)", "(root)")}
    return sum(delta for node, delta in zip(found["samples"], found["timeDeltas"]) if node not in idle) / 1000


def the_work_for_a_job_does_not_grow_with_the_queue(lab, page):
    whole = whole_queue(10_000)
    # Other programs slow a run down, so the fastest one counts, and only in relation to another one.
    few = min(script_time(page, whole_queue(1000), until="job-7") for _ in range(3))
    loaded = min(script_time(page, whole, until="job-7") for _ in range(3))
    changes = [{"event": "patch", "now": whole["now"], "queue": {"rows": {"9000": {"name": f"changed-{n}", "priority": 99_999 + n}}}} for n in range(20)]
    changed = (min(script_time(page, whole, *changes, until="changed-19") for _ in range(3)) - loaded) / len(changes)
    print(f"# script for 1,000 jobs: {few:.0f} ms, for 10,000: {loaded:.0f} ms, for a change: {changed:.1f} ms", flush=True)
    assert loaded < 15 * few, (few, loaded)
    assert changed < loaded / 10, (changed, loaded)


def a_change_passes_over_no_other_rows(lab, page):
    whole = whole_queue(10_000)
    other = answered_by(page, whole)
    other.goto(page.url.split("#")[0] + "#/queue")
    expect(other.locator("#pending .row").first).to_contain_text("job-7")
    # Counts how many rows the page reads to apply a change.
    reads = other.evaluate("""async (patch) => {
        const [store, queue, { clock }] = await Promise.all(["store", "queue", "words"].map((name) => import(`/page/${name}.js`)));
        const read = new Set();
        const all = store.picture(clock());
        for (const row of [...all.pending]) {
            const { priority } = row;
            Object.defineProperty(row, "priority", { configurable: true, enumerable: true, get() { read.add(row.id); return priority; } });
        }
        store.apply(patch);
        queue.show(store.picture(clock()), () => {}, () => {});
        return read.size;
    }""", {"event": "patch", "now": whole["now"], "queue": {"rows": {"9000": {"name": "changed", "priority": 5000}}}})
    other.close()
    # A search in an ordered list reads the logarithm of its length.
    assert reads < 100, reads


def contrast(page, front, back):
    """Returns the contrast of two tokens of the style sheet."""
    def light(name):
        text = page.evaluate(f"getComputedStyle(document.documentElement).getPropertyValue('--{name}').trim()")
        parts = [int(text[at:at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue
    dark, bright = sorted((light(front), light(back)))
    return (bright + 0.05) / (dark + 0.05)


def tokens_have_enough_contrast(lab, page):
    states = ("running", "pending", "completed", "failed", "off")
    pairs = [("ink", "page"), ("dim", "page"), ("dim", "panel"), ("dim", "sunk"), *((state, "page") for state in states), *((state, f"{state}-soft") for state in states)]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = {pair: contrast(page, *pair) for pair in pairs}
        print(f"# least contrast of text, {scheme}: {min(found.values()):.1f}", flush=True)
        low = {pair: value for pair, value in found.items() if value < 4.5}
        assert not low, low
        assert contrast(page, "edge", "page") >= 3
    page.emulate_media(color_scheme="light")


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
        assert backs == {"rgb(255, 255, 255)" if scheme == "light" else "rgb(15, 18, 23)"}, backs


def axe_finds_no_violations_in_menus_and_dialogs(lab, page):
    job = lab.submit("-t", "10", "-J", "examined", "--wrap", "until [ -e examined ]; do sleep 0.1; done")
    go(page, "Queue")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)

        def examine(what):
            found = Axe().run(page).response["violations"]
            violations = [f"{fault['id']}: {node['html'][:120]}" for fault in found for node in fault["nodes"][:2]]
            assert not violations, f"{scheme} {what}: {violations}"

        row(page, "running", job).get_by_role("checkbox").check()
        expect(page.locator("#selection")).to_be_visible()
        row(page, "running", job).get_by_role("button", name="actions").click()
        expect(page.get_by_role("menu")).to_be_visible()
        examine("menu and selection")
        page.locator("#menu [data-action=cancel]").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        examine("question")
        page.locator("#confirm-no").click()
        act(page, "running", job, "limit")
        page.locator("#enter-text").fill("soon")
        page.locator("#enter-yes").click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Invalid")
        examine("wrong limit")
        page.locator("#enter-no").click()
        page.keyboard.press("Escape")
        row(page, "running", job).get_by_role("checkbox").uncheck()
        page.locator("#filter").fill("nothing-has-this-name")
        expect(page.locator("#no-match")).to_be_visible()
        examine("no match")
        page.get_by_role("button", name="Clear the filter").click()
        expect(row(page, "running", job)).to_be_visible()
    page.emulate_media(color_scheme="light")
    (lab.work / "examined").touch()
    is_over(page, job, "COMPLETED")


def dialogs_keep_and_return_the_focus(lab, page):
    job = lab.submit("-H", "-J", "focused", "--wrap", "true")
    button = row(page, "pending", job).get_by_role("button", name="actions")
    for action, dialog in (("cancel", "confirm"), ("limit", "enter")):
        act(page, "pending", job, action)
        expect(page.get_by_role("dialog")).to_be_visible()
        for _ in range(8):
            page.keyboard.press("Tab")
            # After the last control, the browser itself has the focus.
            is_inside = page.evaluate(f"document.activeElement === document.body || !!document.activeElement.closest('#{dialog}')")
            assert is_inside, page.evaluate("document.activeElement.outerHTML")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        expect(button).to_be_focused()
    lab.run("scancel", job)
    is_over(page, job, "CANCELLED")


def focus_is_visible_on_every_control(lab, page):
    job = lab.submit("-H", "-J", "outlined", "--wrap", "true")
    expect(row(page, "pending", job)).to_be_visible()
    for view in views(page):
        page.locator("#main").focus()
        seen = 0
        for _ in range(24):
            page.keyboard.press("Tab")
            found = page.evaluate("""() => {
                const element = document.activeElement;
                if (element === document.body) return undefined;
                const { outlineStyle, outlineWidth } = getComputedStyle(element);
                return [outlineStyle !== "none" && parseFloat(outlineWidth) >= 2, element.outerHTML.slice(0, 120)];
            }""")
            if not found:
                break
            seen += 1
            assert found[0], f"{view}: {found[1]}"
        assert seen > 2, view
    go(page, "Queue")
    lab.run("scancel", job)
    is_over(page, job, "CANCELLED")


def page_without_a_daemon_says_so(lab, page):
    other = answered_by(page, {"event": "daemon", "up": False})
    other.goto(page.url.split("#")[0] + "#/queue")
    expect(other.locator("#stale")).to_contain_text("There is no queue to show yet")
    expect(other.locator("#filter")).to_be_hidden()
    other.close()


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
    expect(row(page, "pending", job)).to_contain_text("after")


def page_reported_no_errors(lab, page):
    assert not page.faults, page.faults


CHECKS = (
    address_opens_the_page_and_hides_the_token,
    address_works_only_once,
    jobs_start_and_end_without_a_reload,
    cancel_asks_for_confirmation,
    confirmation_applies_to_its_own_dialog,
    time_limit_of_a_running_job_is_changed,
    pending_job_names_the_job_ahead_of_it,
    reservations_licenses_and_recurring_jobs_are_shown,
    running_job_shows_its_last_line,
    environment_and_source_have_tabs,
    failed_job_shows_the_last_line_of_its_errors,
    jobs_that_wait_for_a_job_are_listed,
    page_of_an_array_is_not_the_page_of_a_task,
    pending_jobs_say_what_they_wait_for,
    html_in_a_job_name_is_escaped,
    change_touches_only_its_row,
    two_pages_agree,
    disconnected_page_catches_up,
    long_queue_is_shown_on_demand,
    filter_selects_from_the_whole_queue,
    array_is_one_row_that_expands,
    form_submits_a_job,
    address_that_names_no_job_is_shown_as_it_is,
    log_is_followed_from_its_end,
    job_plots_its_usage,
    gpus_of_job_and_host_are_plotted,
    failed_job_is_retried,
    pending_job_shows_its_reason_and_can_be_edited,
    history_is_searched,
    history_has_figures_by_name_and_by_day,
    timeline_shows_past_and_planned_jobs,
    page_works_with_the_keyboard_only,
    change_of_a_selected_job_is_shown,
    selected_jobs_are_held_and_undone_together,
    chips_count_and_filter,
    output_is_coloured_and_searched,
    views_fit_screens_of_any_width,
    names_have_room_in_a_narrow_window,
    queue_of_70_jobs_is_short_on_a_phone,
    the_work_for_a_job_does_not_grow_with_the_queue,
    a_change_passes_over_no_other_rows,
    tokens_have_enough_contrast,
    axe_finds_no_violations_in_light_and_dark_mode,
    axe_finds_no_violations_in_menus_and_dialogs,
    dialogs_keep_and_return_the_focus,
    focus_is_visible_on_every_control,
    page_without_a_daemon_says_so,
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
        config = pathlib.Path(work) / "slotd.toml"
        config.write_text(CONFIG)
        lab = Lab(pathlib.Path(work), pathlib.Path(sys.argv[1]), SLOTD_CONFIG=str(config), SLOTD_FEATURES="avx512", SECRET_TOKEN="hidden-value")
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
