import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Sends messages for clients of another protocol, or takes theirs, by RocketMQ 5's Java client:
 * {@code Exchange send ENDPOINT TOPIC COUNT} and {@code Exchange take ENDPOINT GROUP TOPIC=COUNT...}.
 */
public class Exchange {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final long PATIENCE_S = 40;

    private static ClientConfiguration configuration;

    public static void main(String[] arguments) throws Exception {
        configuration = ClientConfiguration.newBuilder()
            .setEndpoints(arguments[1]).enableSsl(false).setRequestTimeout(Duration.ofSeconds(10)).build();
        if (arguments[0].equals("send")) {
            send(arguments[2], Integer.parseInt(arguments[3]));
        } else {
            for (String each : Arrays.asList(arguments).subList(3, arguments.length)) {
                String[] wanted = each.split("=");
                take(arguments[2] + "-" + wanted[0], wanted[0], Integer.parseInt(wanted[1]));
            }
        }
        System.exit(0);
    }

    private static MessageBuilder message(String topic, String number) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(("body " + number).getBytes(StandardCharsets.UTF_8))
            .setKeys("k" + number).setTag("tag").addProperty("number", number);
    }

    private static void send(String topic, int count) throws Exception {
        String late = topic + "-late";
        Producer producer = PROVIDER.newProducerBuilder()
            .setClientConfiguration(configuration).setTopics(topic, late).build();
        for (int number = 0; number < count; number++) {
            producer.send(message(topic, String.valueOf(number)).build());
        }
        producer.send(message(late, "0").setDeliveryTimestamp(System.currentTimeMillis() + 5000).build());
        System.out.println("sent");
        producer.close();
    }

    private static void take(String group, String topic, int count) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        try (SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build()) {
            while (count > 0 && System.nanoTime() < end) {
                for (MessageView each : consumer.receive(32, Duration.ofSeconds(30))) {
                    consumer.ack(each);
                    String body = StandardCharsets.UTF_8.decode(each.getBody()).toString();
                    System.out.println(String.join("\t", "got", topic, body, String.join(" ", each.getKeys()),
                        each.getTag().orElse(""), each.getProperties().get("number")));
                    count--;
                }
            }
        }
    }
}
