// The data lie in the page; everything else is made from them.

const data = JSON.parse(document.getElementById("data").textContent);
document.getElementById("about").append(about(data));
document.getElementById("workers").append(...workerList(data));
document.getElementById("overview").append(...overview(data));
document
  .getElementById("requests")
  .append(...(data.requests.length > 0 ? requestTable(data) : [el("p", { class: "empty" }, "No such request is kept.")]));
