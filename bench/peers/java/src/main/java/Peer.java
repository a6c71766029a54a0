import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntUnaryOperator;

/**
 * fabric8's informer as a peer of the bench: it syncs on an order, and times the ordered reads.
 *
 * Must not look at what it reads. One line of JSON in, one out: bench/peers/asking.py has the words.
 */
public final class Peer {
  private static final Map<String, ?> NO_SUCH_READ = Map.of("left out", "no such read");

  private final SharedIndexInformer<Pod> informer;

  private Peer(KubernetesClient client) {
    informer = client.pods().inAnyNamespace().runnableInformer(0);
    informer.addIndexers(Map.of("app", pod -> List.of(pod.getMetadata().getLabels().get("app"))));
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream out = System.out;
    System.setOut(System.err);
    ObjectMapper json = new ObjectMapper();
    Peer peer = new Peer(new KubernetesClientBuilder().build());
    out.println(json.writeValueAsString(Map.of("ready", true)));
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      Map<String, ?> answer;
      try {
        answer = peer.obeyed(json.readTree(line));
      } catch (Exception error) {
        answer = Map.of("error", error.toString());
      }
      out.println(json.writeValueAsString(answer));
    }
    System.exit(0);
  }

  private Map<String, ?> obeyed(JsonNode order) throws Exception {
    switch (order.get("do").asText()) {
      case "sync": {
        long began = System.nanoTime();
        informer.start().toCompletableFuture().get();
        return Map.of("seconds", (System.nanoTime() - began) / 1e9, "objects", informer.getStore().list().size());
      }
      case "collect":
        System.gc();
        return Map.of();
      case "until": {
        String at = key(order.get("keys").get(0));
        String name = order.get("annotation").get(0).asText();
        String value = order.get("annotation").get(1).asText();
        while (!value.equals(informer.getIndexer().getByKey(at).getMetadata().getAnnotations().get(name))) {
          LockSupport.parkNanos((long) (order.get("every").asDouble() * 1e9));
        }
        Instant now = Instant.now();
        return Map.of("at", now.getEpochSecond() + now.getNano() / 1e9);
      }
      default:
        return read(order);
    }
  }

  private Map<String, ?> read(JsonNode order) {
    String form = order.get("form").asText();
    String read = order.get("do").asText();
    int times = order.get("times").asInt();
    if (form.equals("keys") && read.equals("label")) {
      String value = order.get("label").get(1).asText();
      return timed(times, index -> informer.getIndexer().indexKeys("app", value).size());
    }
    if (!form.isEmpty() && !form.equals("view")) {
      return NO_SUCH_READ;
    }
    switch (read) {
      case "get": {
        List<String> asked = new ArrayList<>();
        order.get("keys").forEach(pair -> asked.add(key(pair)));
        return timed(times, index -> informer.getIndexer().getByKey(asked.get(index % asked.size())) == null ? 0 : 1);
      }
      case "namespace": {
        String wanted = order.get("namespace").asText();
        return timed(times, index -> informer.getIndexer().byIndex("namespace", wanted).size());
      }
      case "label": {
        String name = order.get("label").get(0).asText();
        String value = order.get("label").get(1).asText();
        return timed(times, index -> informer.getStore().list().stream()
            .filter(pod -> value.equals(pod.getMetadata().getLabels().get(name))).toList().size());
      }
      case "indexed": {
        String value = order.get("label").get(1).asText();
        return timed(times, index -> informer.getIndexer().byIndex("app", value).size());
      }
      default:
        return NO_SUCH_READ;
    }
  }

  private static String key(JsonNode pair) {
    return pair.get(0).asText() + "/" + pair.get(1).asText();
  }

  private static Map<String, ?> timed(int times, IntUnaryOperator read) {
    double[] took = new double[times];
    int found = 0;
    for (int index = 0; index < times; index++) {
      long began = System.nanoTime();
      found = read.applyAsInt(index);
      took[index] = (System.nanoTime() - began) / 1e3;
    }
    Arrays.sort(took);
    return Map.of("p50", took[times / 2], "p99", took[times * 99 / 100], "objects", found);
  }
}
