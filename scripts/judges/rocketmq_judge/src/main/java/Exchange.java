import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages for clients of another protocol, or takes theirs, by the remoting Java client:
 * {@code Exchange send NAMESERVER TOPIC COUNT} and {@code Exchange take NAMESERVER GROUP TOPIC=COUNT...}.
 */
public class Exchange {
    private static final long PATIENCE_S = 40;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("send")) {
            send(arguments[1], arguments[2], Integer.parseInt(arguments[3]));
        } else {
            take(arguments[1], arguments[2], Arrays.asList(arguments).subList(3, arguments.length));
        }
        System.exit(0);
    }

    private static Message message(String topic, String number) {
        Message made = new Message(topic, "tag", "k" + number, ("body " + number).getBytes(StandardCharsets.UTF_8));
        made.putUserProperty("number", number);
        return made;
    }

    private static void send(String nameserver, String topic, int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("exchange-producers");
        producer.setNamesrvAddr(nameserver);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        for (int number = 0; number < count; number++) {
            producer.send(message(topic, String.valueOf(number)));
        }
        Message late = message(topic + "-late", "0");
        // Five seconds.
        late.setDelayTimeLevel(2);
        producer.send(late);
        System.out.println("sent");
        producer.shutdown();
    }

    private static void take(String nameserver, String group, List<String> wanted) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameserver);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        int count = 0;
        for (String each : wanted) {
            consumer.subscribe(each.split("=")[0], "*");
            count += Integer.parseInt(each.split("=")[1]);
        }
        AtomicInteger left = new AtomicInteger(count);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                String body = new String(each.getBody(), StandardCharsets.UTF_8);
                System.out.println(String.join("\t", "got", each.getTopic(), body, each.getKeys(), each.getTags(),
                    each.getUserProperty("number")));
                left.decrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (left.get() > 0 && System.nanoTime() < end) {
            Thread.sleep(50);
        }
        consumer.shutdown();
    }
}
