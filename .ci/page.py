"""Tries the page of a plan in a browser: `python3 .ci/page.py SHARDLOOM FOLDER`.

Plans a small model and one on 1,024 GPUs, opens their pages in headless Chromium through chromedriver, and holds
what is seen after clicks against what the pages say. Screenshots are left in the folder.
"""

import base64
import json
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

FULL_PAGE_BYTES = 5_000_000
# The driver is on this host, whatever is between it and others.
HERE = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Browser:
    """Chromium, by the WebDriver protocol (W3C)."""

    def __init__(self) -> None:
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        port = None
        for line in self.driver.stdout:
            if "successfully on port" in line:
                port = int(line.rstrip(".\n ").rsplit(" ", 1)[1])
                break
        if port is None:
            sys.exit("chromedriver says no port")
        self.address = f"http://127.0.0.1:{port}/session"
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1600"]
        wanted = {"alwaysMatch": {"goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}}
        made = self.send("POST", "", {"capabilities": wanted})
        self.address += "/" + made["sessionId"]

    def send(self, method: str, path: str, body: object = None) -> object:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with HERE.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{method} {path}: {json.load(error)['value']['message']}")

    def open(self, page: Path) -> None:
        self.send("POST", "/url", {"url": page.resolve().as_uri()})
        self.said = json.loads(self.script("return document.getElementById('plan').textContent"))

    def script(self, text: str) -> object:
        return self.send("POST", "/execute/sync", {"script": text, "args": []})

    def click(self, selector: str) -> None:
        found = self.send("POST", "/element", {"using": "css selector", "value": selector})
        number = next(iter(found.values()))
        self.send("POST", f"/element/{number}/click", {})

    def count(self, selector: str) -> int:
        return self.script(f"return document.querySelectorAll({json.dumps(selector)}).length")

    def appears(self, selector: str) -> None:
        """What is opened is made a moment later."""
        for _ in range(100):
            if self.count(selector):
                return
            time.sleep(0.02)
        sys.exit(f"`{selector}` does not appear")

    def text(self, selector: str) -> str:
        return self.script(f"return document.querySelector({json.dumps(selector)})?.textContent ?? ''")

    def picture(self, to: Path) -> None:
        to.write_bytes(base64.b64decode(self.send("GET", "/screenshot")))

    def complaints(self) -> list:
        return [it["message"] for it in self.send("POST", "/se/log", {"type": "browser"}) if it["level"] == "SEVERE"]

    def close(self) -> None:
        self.send("DELETE", "")
        self.driver.terminate()


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        sys.exit(f"{what}: found {found!r}, expected {expected!r}")


def every_part(browser: Browser, page: Path) -> None:
    """What every page has, and what clicks show."""
    browser.open(page)
    said = browser.said
    for part in ["time", "memory", "devices", "model", "schedule", "limits", "commands"]:
        expect(f"{page.name}: the part {part}", browser.count(f"section#{part} h2"), 1)
    machine, first = said["machine"], said["programs"][0]
    expect("devices", browser.count("rect.device"), machine["devices"])
    expect("nodes", browser.count("rect.node"), -(-machine["devices"] // machine["devices_per_node"]))
    expect("groups of devices that hold alike", browser.count("#memory .fit"), len(said["memory"]))
    # What frees memory is said, or how to find it.
    frees = browser.text("#less")
    if not said["limits"]:
        expect("what frees memory is found", "is found by" in frees or "anew" in frees, True)
    elif not frees.startswith(("The cheapest step that frees memory: ", "No plan on this mesh holds less.")):
        sys.exit(f"{page.name}: of less memory it says {frees!r}")

    # Along an axis as many devices light up as it has.
    name, size = first["axes"][0]
    expect("before an axis is chosen", browser.count("rect.group"), 0)
    browser.click(f"#axes button[data-axis='{name}']")
    expect(f"the group along {name}", browser.count("rect.group") + browser.count("rect.chosen"), size)
    last = machine["devices"] - 1
    browser.click(f"rect[data-rank='{last}']")
    expect("the device that was chosen", browser.text("#group").split(":")[0], f"Device {last}")

    # A block opens, and an operation says how it is computed.
    browser.click("#model details.block > summary")
    browser.appears("#model tr.operation, #model details.layer")
    if browser.count("#model details.layer"):
        browser.click("#model details.layer > summary")
    browser.appears("#model tr.operation")
    browser.click("#model tr.operation")
    operations = [it["partition"] for block in first["blocks"] for it in block["operations"]]
    if browser.text("#model tr.more code") not in operations:
        sys.exit(f"{page.name}: an operation says another partition than the plan: {browser.text('#model tr.more code')}")

    # Something is drawn in the lanes, and nearer is something else.
    drawn = "return document.getElementById('lanes').toDataURL()"
    far = browser.script(drawn)
    browser.click("#nearer")
    if browser.script(drawn) == far:
        sys.exit(f"{page.name}: the schedule is the same from nearer")

    # With a price, steps cost something.
    browser.script("const it = document.getElementById('price'); it.value = 2; it.dispatchEvent(new Event('input'))")
    hours = said["seconds"] / 3600 * machine["devices"]
    cells = browser.script("return [...document.querySelectorAll('#limits td')].map((it) => it.textContent)")
    costs = [float(it[1:]) for it in cells if it.startswith("$")]
    if not any(abs(it - 2 * hours) <= 0.01 * 2 * hours for it in costs):
        sys.exit(f"{page.name}: no step costs {2 * hours}: {costs}")

    plans_again(browser, page)
    for target in [it["target"] for it in said["exports"]]:
        browser.click(f"#exports button[data-target='{target}']")
        files = [it["name"] for it in said["exports"] if it["target"] == target for it in it["files"]]
        expect(f"files for {target}", browser.count("#exports pre"), len(files))
        if files:
            browser.click("#exports button.copy")
    expect(f"{page.name}: what the browser complains of", browser.complaints(), [])


def plans_again(browser: Browser, page: Path) -> None:
    """The command that plans again has what is asked for: of what is kept, memory, and what was pinned above."""
    said = browser.said
    expect(f"{page.name}: ways to plan again", browser.count("#way option"), len(said["again"]))
    expect("the first way", browser.text("#command"), said["again"][0]["command"])
    browser.click("#model tr.more button.pin")
    browser.script("const it = document.getElementById('limit'); it.value = '60GiB'; it.dispatchEvent(new Event('input'))")
    asked = browser.text("#command")
    expect("the command with what is asked for", asked.startswith(said["again"][0]["command"] + " --memory 60GiB --pin '"), True)
    if not any(asked.endswith(f"--pin '{it['name']}={it['partition']}'") for block in said["programs"][0]["blocks"] for it in block["operations"]):
        sys.exit(f"{page.name}: no operation of the plan is pinned by {asked!r}")
    browser.click("#pins button")
    browser.script("const it = document.getElementById('limit'); it.value = ''; it.dispatchEvent(new Event('input'))")
    browser.script(f"const it = document.getElementById('way'); it.value = {len(said['again']) - 1}; it.dispatchEvent(new Event('change'))")
    expect("the last way", browser.text("#command"), said["again"][-1]["command"])
    browser.script("ask({ way: 0 })")
    for number, limit in enumerate(it for it in said["limits"] if it.get("seconds")):
        browser.script(f"document.querySelectorAll('#limits button.take')[{number}].click()")
        given = browser.script(f"return document.querySelectorAll('#limits button.take')[{number}].dataset.command")
        expect("the command of a row", browser.text("#command"), given)


def runs_again(shardloom: str, folder: Path, plan: Path, page: Browser) -> None:
    """The command that the page shows, run as it stands there, makes the same plan."""
    words = shlex.split(page.text("#command"))
    expect("the command", words[:2], ["shardloom", "plan"])
    made = folder / "again.json"
    subprocess.run([shardloom, *words[1:], "--quiet", "--force", "-o", made], check=True)
    expect(f"{plan.name}: the plan that is made again", made.read_bytes() == plan.read_bytes(), True)


def main() -> None:
    shardloom, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    small = ["tests/models/gpt2-bytes.onnx", "--machine", "cpu-4x", "--mesh", "2x2"]
    small += ["--dim", "batch=8", "--dim", "sequence=64"]
    large = ["--config", "tests/configs/llama3_8b.json", "--machine", "h100-80g-1024x", "--mode", "train", "--loss", "loss"]
    large += ["--dim", "batch=256", "--dim", "sequence=4096", "--precision", "bf16", "--stages", "4", "--mesh", "256"]
    large += ["--microbatches", "8"]
    browser = Browser()
    try:
        for name, arguments in {"small": small, "large": large}.items():
            plan, page = folder / f"{name}.json", folder / f"{name}.html"
            subprocess.run([shardloom, "plan", "--quiet", "--force", *arguments, "-o", plan, "--html", page], check=True)
            began = time.monotonic()
            every_part(browser, page)
            browser.picture(folder / f"{name}.png")
            browser.script("ask({ way: 0, memory: '', pins: [] })")
            runs_again(shardloom, folder, plan, browser)
            took = time.monotonic() - began
            print(f"{page}: {page.stat().st_size} bytes, tried in {took:.1f} s")
            if page.stat().st_size > FULL_PAGE_BYTES:
                sys.exit(f"{page} has {page.stat().st_size} bytes, expected {FULL_PAGE_BYTES} at most")
        page = folder / "alternatives.html"
        said = ["explain", "--quiet", "--force", folder / "small.json", "--alternatives", "--html", page]
        subprocess.run([shardloom, *said], check=True)
        every_part(browser, page)
        expect("other memory is priced", bool(browser.said["limits"]), True)
        if "a step in which it is not computed so: not priced" in browser.text("#model tr.more"):
            sys.exit(f"{page.name}: an operation has no alternative: {browser.text('#model tr.more')}")
        # What is next best of an operation is planned by the command beside it.
        browser.script("ask({ way: 0, memory: '', pins: [] })")
        browser.script("for (const it of document.querySelectorAll('#model tr.operation')) "
                       "if (!document.querySelector('#model button.next')) it.click()")
        browser.click("#model button.next")
        given = browser.script("return document.querySelector('#model button.next').dataset.command")
        expect("the command of what is next best", browser.text("#command"), given)
    finally:
        browser.close()


main()
