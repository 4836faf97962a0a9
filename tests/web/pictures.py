"""Makes the pictures of README and book: `slotd top` as top.svg, the views of the page as web*.png. Started by `run`.

A daemon of its own serves a queue on a host that is only pretended: 16 CPUs, 64 GB, 2 GPUs. The script fails if a picture
does not show that queue.
"""

import html
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from browse import Lab, os, sync_playwright

COLUMNS, ROWS = 110, 22
# The 16 colors of terminals, as in xterm's palette, darker where the background is light.
COLORS = "#1c1e26 #d9534f #4ea75b #c9a227 #4a90d9 #a56cc1 #3ba7a7 #c8ccd4 #6b7280 #ef7672 #72c981 #e3c34f #74aef0 #c291dc #63cccc #ffffff".split()
BACKGROUND, FOREGROUND = "#14161c", "#d4d8e0"
CELL_WIDTH, CELL_HEIGHT = 8.4, 17
# SVG renderers merge consecutive spaces.
NBSP = "\u00a0"


def queue(lab):
    """Submits the jobs that the pictures show."""
    lasting = "until [ -e done ]; do sleep 0.2; done"
    quick = lab.submit("-J", "prepare", "-c", "4", "--mem=2G", "-t", "20", "--wrap", "sleep 0.3")
    lab.submit("-J", "lint", "--mem=200M", "-t", "5", "--wrap", "exit 1")
    lab.submit("-W", "-J", "tokenize", "-c", "2", "--mem=1G", "-t", "30", "-d", f"afterok:{quick}", "--wrap", "true")
    learning = f"for step in $(seq 2000 10 2300); do echo \"step $step/6000  loss 0.4$((7000 - step))  8,9$((step % 89 + 10)) tok/s\"; done; {lasting}"
    train = lab.submit("-J", "train", "-p", "gpu", "-G", "1", "-c", "4", "--mem=16G", "-t", "6:00:00", "--wrap", learning)
    lab.train = train
    lab.submit("-J", "finetune", "-p", "gpu", "-G", "1", "-c", "4", "--mem=12G", "-t", "2:30:00", "--wrap", lasting)
    lab.submit("-J", "simulate", "-a", "1-40%4", "-c", "2", "--mem=2G", "-t", "45", "--wrap",
               f"[ $SLURM_ARRAY_TASK_ID -le 6 ] && exit; {lasting}")
    lab.submit("-J", "evaluate", "-c", "8", "--mem=8G", "-t", "1:00:00", "-d", f"afterok:{train}", "--wrap", "true")
    lab.submit("-J", "big-model", "-p", "gpu", "-G", "2", "-c", "8", "--mem=40G", "-t", "12:00:00", "--wrap", "true")
    lab.submit("-J", "report", "-c", "8", "--mem=4G", "-t", "10", "--wrap", "true")
    lab.submit("-J", "nightly-backup", "-c", "1", "--mem=500M", "-b", "23:00", "--wrap", "true")
    user = lab.run("id", "-un")
    lab.run("scontrol", "create", "reservation", "ReservationName=course", "StartTime=now+50minutes", "Duration=30", f"Users={user}", "CoreCnt=4")


def cells(line):
    """Yields the text of a line of tmux's capture, with its foreground, background and weight."""
    fore, back, bold, dim, reverse = None, None, False, False, False
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b"):
            if part:
                colors = (fore or FOREGROUND, back)
                yield part, *((back or BACKGROUND, fore or FOREGROUND) if reverse else colors), bold, dim
            continue
        codes = [int(code or 0) for code in part[2:-1].split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                fore, back, bold, dim, reverse = None, None, False, False, False
            elif code == 1:
                bold = True
            elif code == 2:
                dim = True
            elif code == 22:
                bold = dim = False
            elif code in (7, 27):
                reverse = code == 7
            elif 30 <= code <= 37 or 90 <= code <= 97:
                fore = COLORS[code - 30 if code < 40 else code - 82]
            elif 40 <= code <= 47 or 100 <= code <= 107:
                back = COLORS[code - 40 if code < 50 else code - 92]
            elif code in (38, 48):
                kind = codes.pop(0)
                color = indexed(codes.pop(0)) if kind == 5 else "#%02x%02x%02x" % tuple(codes.pop(0) for _ in range(3))
                fore, back = (color, back) if code == 38 else (fore, color)
            elif code in (39, 49):
                fore, back = (None, back) if code == 39 else (fore, None)


def indexed(number):
    """Returns a color of the 256-color palette."""
    if number < 16:
        return COLORS[number]
    if number >= 232:
        return "#" + f"{8 + 10 * (number - 232):02x}" * 3
    steps = (0, 95, 135, 175, 215, 255)
    number -= 16
    return "#" + "".join(f"{steps[number // size % 6]:02x}" for size in (36, 6, 1))


def svg(lines, title):
    width, height = COLUMNS * CELL_WIDTH + 24, len(lines) * CELL_HEIGHT + 24
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14">',
    ]
    for row, line in enumerate(lines):
        column, top = 0, 12 + row * CELL_HEIGHT
        for text, fore, back, bold, dim in cells(line):
            left, length = 12 + column * CELL_WIDTH, len(text) * CELL_WIDTH
            column += len(text)
            if back:
                out.append(f'<rect x="{left:.1f}" y="{top}" width="{length:.1f}" height="{CELL_HEIGHT}" fill="{back}"/>')
            if text.strip():
                style = (' font-weight="bold"' if bold else "") + (' opacity="0.65"' if dim else "")
                out.append(f'<text x="{left:.1f}" y="{top + 13}" textLength="{length:.1f}" fill="{fore}"{style}>{html.escape(text).replace(" ", NBSP)}</text>')
    return "\n".join([*out, "</g>", "</svg>", ""])


def top(lab, out):
    def tmux(*words):
        return subprocess.run(["tmux", "-L", f"slotd-{lab.work.name}", *words], env=lab.env, cwd=lab.work, check=True, capture_output=True, text=True).stdout

    lab.env["TERM"] = "xterm-256color"
    tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "slotd top --theme=dark")
    try:
        tmux("set-option", "status", "off")
        for _ in range(600):
            shown = tmux("capture-pane", "-p")
            # The details of pending jobs and GPUs follow the first picture.
            if all(text in shown for text in ("simulate", "8 CPUs and", "busy,", "92%", "61%")):
                break
            subprocess.run(["sleep", "0.05"], check=True)
        else:
            sys.exit(f"slotd top does not show the queue:\n{shown}")
        lines = tmux("capture-pane", "-e", "-p").rstrip("\n").split("\n")
    finally:
        tmux("kill-server")
    (out / "top.svg").write_text(svg(lines, "slotd top"))


# The pictures of the page: its view, the size of the window, the colour scheme, and what must be there.
PAGES = {
    "web": ("queue", (1280, 820), "light", "#host path.edge[d^=M]"),
    "web-dark": ("queue", (1280, 820), "dark", "#host path.edge[d^=M]"),
    "web-phone": ("queue", (390, 844), "light", "#running .row"),
    "web-job": ("job/train", (1280, 820), "light", "#job path.edge[d^=M]"),
    "web-timeline": ("timeline", (1280, 820), "light", "#timeline [data-reservation]"),
    "web-history": ("history", (1280, 820), "light", "#names td"),
    "web-submit": ("submit", (1280, 820), "light", "#prediction strong"),
}


def page(lab, out):
    with sync_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=sandbox)
        view = browser.new_context().new_page()
        view.goto(lab.web())
        view.get_by_text("big-model").first.wait_for()
        base = view.url.split("#")[0]
        for name, (target, (width, height), scheme, there) in PAGES.items():
            view.set_viewport_size({"width": width, "height": height})
            view.emulate_media(color_scheme=scheme)
            view.goto(f"{base}#/{target.replace('train', lab.train)}")
            if target == "submit":
                view.locator("#submit [name=job-name]").fill("finetune-gemma")
                view.locator("#submit [name=cpus-per-task]").fill("4")
                view.locator("#submit [name=mem]").fill("200G")
                view.locator("#fields [aria-invalid]").wait_for()
            view.locator(there).first.wait_for(state="attached")
            view.screenshot(path=out / f"{name}.png")
        browser.close()


def main():
    slotd, out = map(pathlib.Path, sys.argv[1:3])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        lab = Lab(pathlib.Path(work), slotd, SLOTD_CPUS="16", SLOTD_MEMORY_MB="64000")
        card = "#!/bin/sh\ncase \"$*\" in *compute-apps*|*-L*) ;; *) echo 0, NVIDIA H100, GPU-0, 80000, 22000, 92, Disabled; echo 1, NVIDIA H100, GPU-1, 80000, 54000, 61, Disabled;; esac\n"
        (lab.work / "bin" / "nvidia-smi").write_text(card)
        lab.run("scontrol", "reconfigure")
        try:
            queue(lab)
            top(lab, out)
            page(lab, out)
        finally:
            (lab.work / "done").touch()
            lab.end()
    for name in ("top.svg", *(f"{page}.png" for page in PAGES)):
        print(out / name)


main()
