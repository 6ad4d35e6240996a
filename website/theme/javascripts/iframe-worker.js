// Stands in for Worker where pages are opened as files: browsers refuse workers there, and search
// runs in one. The script of the worker runs in a hidden frame instead; events pass both ways.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.receive(data)
      this.ready = new Promise((resolve, reject) => {
        const script = inside.document.createElement("script")
        script.onload = resolve
        script.onerror = reject
        script.src = url
        inside.document.body.append(script)
      })
    }

    receive(data) {
      const event = new MessageEvent("message", { data })
      this.dispatchEvent(event)
      if (this.onmessage) this.onmessage(event)
    }

    postMessage(data) {
      this.ready.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
