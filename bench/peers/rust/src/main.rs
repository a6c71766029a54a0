//! kube-rs' reflector as a peer of the bench: it syncs on an order, and times the ordered reads.
//!
//! Must not look at what it reads. One line of JSON in, one out: bench/peers/asking.py has the words.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

fn tell(what: Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}").and_then(|()| out.flush()).expect("somebody listens");
}

async fn sync(store: &Store<Pod>, writer: reflector::store::Writer<Pod>, client: Client, stripped: bool) -> Value {
    let began = Instant::now();
    let pods = watcher(Api::<Pod>::all(client), watcher::Config::default()).default_backoff();
    tokio::spawn(async move {
        if stripped {
            let smaller = pods.modify(|pod| pod.managed_fields_mut().clear());
            smaller.reflect(writer).for_each(|_| async {}).await;
        } else {
            pods.reflect(writer).for_each(|_| async {}).await;
        }
    });
    match store.wait_until_ready().await {
        Ok(()) => json!({"seconds": began.elapsed().as_secs_f64(), "objects": store.len()}),
        Err(error) => json!({"error": error.to_string()}),
    }
}

fn timed(times: usize, mut read: impl FnMut(usize) -> usize) -> Value {
    let mut took = Vec::with_capacity(times);
    let mut found = 0;
    for index in 0..times {
        let began = Instant::now();
        found = read(index);
        took.push(began.elapsed().as_nanos() as f64 / 1e3);
    }
    took.sort_by(f64::total_cmp);
    json!({"p50": took[times / 2], "p99": took[times * 99 / 100], "objects": found})
}

fn keys(order: &Value) -> Vec<ObjectRef<Pod>> {
    let pairs = order["keys"].as_array().expect("keys");
    pairs.iter().map(|pair| ObjectRef::new(pair[1].as_str().unwrap()).within(pair[0].as_str().unwrap())).collect()
}

fn read(store: &Store<Pod>, order: &Value) -> Value {
    if !matches!(order["form"].as_str(), Some("" | "view")) {
        return json!({"left out": "no such read"});
    }
    let times = order["times"].as_u64().expect("times") as usize;
    match order["do"].as_str() {
        Some("get") => {
            let asked = keys(order);
            timed(times, |index| store.get(&asked[index % asked.len()]).map_or(0, |_| 1))
        }
        Some("namespace") => {
            let wanted = order["namespace"].as_str();
            timed(times, |_| {
                let found: Vec<_> = store.state().into_iter().filter(|pod| pod.metadata.namespace.as_deref() == wanted).collect();
                found.len()
            })
        }
        Some("label") => {
            let (name, value) = (order["label"][0].as_str().unwrap(), order["label"][1].as_str().unwrap());
            timed(times, |_| {
                let found: Vec<_> = store.state().into_iter().filter(|pod| pod.labels().get(name).is_some_and(|one| one == value)).collect();
                found.len()
            })
        }
        _ => json!({"left out": "no such read"}),
    }
}

async fn until(store: &Store<Pod>, order: &Value) -> Value {
    let at = keys(order).remove(0);
    let (name, value) = (order["annotation"][0].as_str().unwrap(), order["annotation"][1].as_str().unwrap());
    let every = Duration::from_secs_f64(order["every"].as_f64().expect("every"));
    while store.get(&at).is_none_or(|pod| pod.annotations().get(name).is_none_or(|one| one != value)) {
        tokio::time::sleep(every).await;
    }
    json!({"at": SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()})
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stripped = std::env::args().nth(1).as_deref() == Some("stripped");
    let client = Client::try_default().await?;
    let (store, writer) = reflector::store();
    let mut writer = Some(writer);
    tell(json!({"ready": true}));
    for line in std::io::stdin().lock().lines() {
        let order: Value = serde_json::from_str(&line?)?;
        tell(match order["do"].as_str() {
            Some("sync") => sync(&store, writer.take().expect("one sync"), client.clone(), stripped).await,
            Some("collect") => json!({}),
            Some("until") => until(&store, &order).await,
            _ => read(&store, &order),
        });
    }
    Ok(())
}
