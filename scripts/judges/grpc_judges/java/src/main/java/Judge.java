import java.io.Closeable;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientException;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Uses a proxy through RocketMQ 5's official Java client, case by case: {@code Judge ENDPOINT RUN CASE...}.
 *
 * <p>Each case has a topic and a group of its own, grpc-NAME-RUN and grpc-group-NAME-RUN, which must be there.
 */
public class Judge {
    interface Case {
        void run() throws Exception;
    }

    interface End {
        void end(Transaction transaction) throws Exception;
    }

    private static final long PATIENCE_S = 30;
    private static final Duration AWAIT = Duration.ofSeconds(5);
    private static final Duration HIDDEN = Duration.ofSeconds(15);
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Map<String, Case> CASES = new LinkedHashMap<>();

    private static String endpoint;
    private static String topic;
    private static String group;
    private static boolean hasTls;
    private static final List<Closeable> open = new ArrayList<>();

    static {
        CASES.put("send", Judge::send);
        CASES.put("burst", Judge::burst);
        CASES.put("simple", Judge::sendAndReceive);
        CASES.put("tls", Judge::tls);
        CASES.put("unknown", Judge::unknown);
        CASES.put("large", Judge::large);
        CASES.put("tags", Judge::tags);
        CASES.put("sql", Judge::sql);
        CASES.put("fifo", Judge::fifo);
        CASES.put("priority", Judge::priority);
        CASES.put("delay", Judge::delay);
        CASES.put("recall", Judge::recall);
        CASES.put("commit", Judge::commit);
        CASES.put("rollback", Judge::rollback);
        CASES.put("orphan", Judge::orphan);
        CASES.put("nack", Judge::nack);
        CASES.put("redelivery", Judge::redelivery);
        CASES.put("push", Judge::push);
        CASES.put("push_retry", Judge::pushRetry);
        CASES.put("push_fifo", Judge::pushFifo);
        CASES.put("dead", Judge::dead);
        CASES.put("lite", Judge::lite);
        CASES.put("lite_exclusive", Judge::liteExclusive);
    }

    public static void main(String[] arguments) {
        endpoint = arguments[0];
        for (String each : Arrays.asList(arguments).subList(2, arguments.length)) {
            topic = "grpc-" + each + "-" + arguments[1];
            group = "grpc-group-" + each + "-" + arguments[1];
            hasTls = false;
            String outcome = "passed";
            try {
                check(CASES.containsKey(each), "is no case");
                CASES.get(each).run();
            } catch (Throwable fault) {
                fault.printStackTrace(System.out);
                String at = Arrays.stream(fault.getStackTrace())
                    .filter(frame -> frame.getClassName().equals("Judge") && !frame.getMethodName().equals("check"))
                    .map(frame -> ":" + frame.getLineNumber() + ": ").findFirst().orElse(": ");
                outcome = "failed Judge.java" + at + String.valueOf(fault).replace('\n', ' ');
            }
            for (Closeable closed : open) {
                try {
                    closed.close();
                } catch (Exception fault) {
                    System.out.println("close: " + fault);
                }
            }
            open.clear();
            System.out.println("case " + each + " " + outcome);
        }
        System.exit(0);
    }

    // -- helpers

    private static void check(boolean holds, Object... told) {
        if (!holds) {
            throw new AssertionError(Arrays.toString(told));
        }
    }

    private static ClientConfiguration configuration() {
        return ClientConfiguration.newBuilder()
            .setEndpoints(endpoint).enableSsl(hasTls).setRequestTimeout(Duration.ofSeconds(10)).build();
    }

    private static ProducerBuilder building() {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration()).setTopics(topic);
    }

    private static <T extends Closeable> T opened(T client) {
        open.add(client);
        return client;
    }

    private static Producer producer() throws ClientException {
        return opened(building().build());
    }

    private static SimpleConsumer consumer(String from, String by, FilterExpression expression)
        throws ClientException {
        return opened(PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration())
            .setConsumerGroup(by).setAwaitDuration(AWAIT)
            .setSubscriptionExpressions(Collections.singletonMap(from, expression)).build());
    }

    private static SimpleConsumer consumer() throws ClientException {
        return consumer(topic, group, FilterExpression.SUB_ALL);
    }

    /** Starts a push consumer, which puts the bodies and attempts of what it gets into `got`. */
    private static PushConsumer consume(List<String> got, Predicate<MessageView> isDone) throws ClientException {
        return opened(PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration())
            .setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(message -> {
                got.add(body(message) + "/" + message.getDeliveryAttempt());
                return isDone.test(message) ? ConsumeResult.SUCCESS : ConsumeResult.FAILURE;
            }).build());
    }

    /** Starts a consumer of lite topics, which puts the lite topics and bodies of what it gets into `got`. */
    private static LitePushConsumer consumeLite(List<String> got) throws ClientException {
        return opened(PROVIDER.newLitePushConsumerBuilder().setClientConfiguration(configuration())
            .setConsumerGroup(group).bindTopic(topic)
            .setMessageListener(message -> {
                got.add(message.getLiteTopic().orElse("none") + "/" + body(message));
                return ConsumeResult.SUCCESS;
            }).build());
    }

    private static MessageBuilder message(int number) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(String.valueOf(number).getBytes())
            .setKeys("k" + number).addProperty("number", String.valueOf(number));
    }

    private static byte[] bytes(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] copied = new byte[body.remaining()];
        body.get(copied);
        return copied;
    }

    private static String body(MessageView message) {
        return new String(bytes(message));
    }

    /** Receives and acknowledges messages until there are so many. */
    private static List<MessageView> take(SimpleConsumer consumer, int count, int most) throws Exception {
        List<MessageView> got = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (got.size() < count && System.nanoTime() < end) {
            for (MessageView message : consumer.receive(most, HIDDEN)) {
                consumer.ack(message);
                got.add(message);
            }
        }
        return got;
    }

    private static MessageView next(SimpleConsumer consumer, Duration hidden) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (System.nanoTime() < end) {
            List<MessageView> found = consumer.receive(1, hidden);
            if (!found.isEmpty()) {
                return found.get(0);
            }
        }
        throw new AssertionError("no message within " + PATIENCE_S + " s");
    }

    private static void checkBodies(List<MessageView> got, boolean inOrder, Integer... wanted) {
        List<Integer> found = new ArrayList<>();
        for (MessageView message : got) {
            found.add(Integer.valueOf(body(message)));
        }
        if (!inOrder) {
            Collections.sort(found);
        }
        check(found.equals(Arrays.asList(wanted)), found);
    }

    private static void checkNothing(SimpleConsumer consumer) throws ClientException {
        List<MessageView> found = consumer.receive(32, HIDDEN);
        check(found.isEmpty(), "more came", found);
    }

    private static Integer[] numbers(int count) {
        Integer[] found = new Integer[count];
        Arrays.setAll(found, number -> number);
        return found;
    }

    private static void await(List<String> got, int count) throws Exception {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (got.size() < count) {
            check(System.nanoTime() < end, "not within " + PATIENCE_S + " s", got);
            Thread.sleep(20);
        }
    }

    private static long msSince(long beganNs) {
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - beganNs);
    }

    // -- sending and receiving

    private static void send() throws Exception {
        Producer producer = producer();
        Set<String> ids = new HashSet<>();
        for (int number = 0; number < 20; number++) {
            ids.add(producer.send(message(number).build()).getMessageId().toString());
        }
        check(ids.size() == 20, ids);
    }

    /** Fifty at a time, as fast as it goes. */
    private static void burst() throws Exception {
        Producer producer = producer();
        Set<String> ids = new HashSet<>();
        for (int first = 0; first < 3000; first += 50) {
            List<CompletableFuture<SendReceipt>> sent = new ArrayList<>();
            for (int number = first; number < first + 50; number++) {
                sent.add(producer.sendAsync(message(number).build()));
            }
            for (CompletableFuture<SendReceipt> each : sent) {
                ids.add(each.get(PATIENCE_S, TimeUnit.SECONDS).getMessageId().toString());
            }
        }
        check(ids.size() == 3000, ids.size());
    }

    private static void sendAndReceive() throws Exception {
        Producer producer = producer();
        SimpleConsumer consumer = consumer();
        Set<String> ids = new HashSet<>();
        for (int number = 0; number < 20; number++) {
            ids.add(producer.send(message(number).setTag("tag").build()).getMessageId().toString());
        }
        List<MessageView> got = take(consumer, 20, 32);
        checkBodies(got, false, numbers(20));
        for (MessageView message : got) {
            String number = body(message);
            check(ids.remove(message.getMessageId().toString()), "not an id that was sent", message);
            check(new ArrayList<>(message.getKeys()).equals(Collections.singletonList("k" + number)), message);
            check(number.equals(message.getProperties().get("number")), message);
            check(message.getTag().get().equals("tag") && message.getDeliveryAttempt() == 1, message);
        }
        checkNothing(consumer);
    }

    private static void tls() throws Exception {
        hasTls = true;
        sendAndReceive();
    }

    private static void unknown() throws Exception {
        Producer producer = producer();
        Message message = PROVIDER.newMessageBuilder().setTopic(topic + "-unknown").setBody(new byte[1]).build();
        try {
            producer.send(message);
        } catch (ClientException refused) {
            check(String.valueOf(refused).contains("40402"), refused);
            return;
        }
        check(false, "a topic that is not there took a message");
    }

    private static void large() throws Exception {
        Producer producer = producer();
        SimpleConsumer consumer = consumer();
        byte[] body = new byte[3 << 20];
        new Random(1).nextBytes(body);
        producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build());
        List<MessageView> got = take(consumer, 1, 32);
        check(got.size() == 1 && Arrays.equals(bytes(got.get(0)), body), "not the body that was sent");
    }

    private static void tags() throws Exception {
        Producer producer = producer();
        SimpleConsumer consumer = consumer(topic, group, new FilterExpression("A || C"));
        List<Integer> wanted = new ArrayList<>();
        for (int number = 0; number < 30; number++) {
            producer.send(message(number).setTag("ABC".substring(number % 3, number % 3 + 1)).build());
            if (number % 3 != 1) {
                wanted.add(number);
            }
        }
        checkBodies(take(consumer, 20, 32), false, wanted.toArray(new Integer[0]));
        checkNothing(consumer);
    }

    private static void sql() throws Exception {
        Producer producer = producer();
        String expression = "number BETWEEN 3 AND 6 OR TAGS IN ('x')";
        SimpleConsumer consumer = consumer(topic, group, new FilterExpression(expression, FilterExpressionType.SQL92));
        for (int number = 0; number < 10; number++) {
            producer.send(message(number).setTag(number == 9 ? "x" : "y").build());
        }
        checkBodies(take(consumer, 5, 32), false, 3, 4, 5, 6, 9);
        checkNothing(consumer);
    }

    private static void fifo() throws Exception {
        Producer producer = producer();
        SimpleConsumer consumer = consumer();
        for (int number = 0; number < 8; number++) {
            producer.send(message(number).setMessageGroup("one").build());
        }
        List<MessageView> got = take(consumer, 8, 1);
        checkBodies(got, true, numbers(8));
        check(got.stream().allMatch(message -> message.getMessageGroup().get().equals("one")), got);
    }

    private static void priority() throws Exception {
        Producer producer = producer();
        SimpleConsumer consumer = consumer();
        for (int number : new int[] {1, 3, 0, 9, 2, 3}) {
            producer.send(message(number).setPriority(number).build());
        }
        // The topic has four queues; the last one has all priorities from 3 on.
        List<MessageView> got = take(consumer, 6, 1);
        checkBodies(got, true, 3, 9, 3, 2, 1, 0);
        check(got.stream().allMatch(message -> message.getPriority().get() == Integer.parseInt(body(message))), got);
        try {
            producer.send(message(0).build());
        } catch (IllegalArgumentException refused) {
            return;
        }
        check(false, "a message without a priority was stored");
    }

    // -- late messages

    private static void delay() throws Exception {
        Producer producer = producer();
        SimpleConsumer consumer = consumer();
        long began = System.nanoTime();
        producer.send(message(0).setDeliveryTimestamp(System.currentTimeMillis() + 4000).build());
        checkBodies(take(consumer, 1, 32), true, 0);
        long took = msSince(began);
        check(took > 2900 && took < 12_000, "it came after", took);
    }

    private static void recall() throws Exception {
        Producer producer = producer();
        SimpleConsumer consumer = consumer();
        long at = System.currentTimeMillis() + 6000;
        SendReceipt sent = producer.send(message(0).setDeliveryTimestamp(at).build());
        producer.send(message(1).setDeliveryTimestamp(at).build());
        String recalled = producer.recallMessage(topic, sent.getRecallHandle()).getMessageId().toString();
        check(recalled.equals(sent.getMessageId().toString()), recalled, sent);
        checkBodies(take(consumer, 1, 32), true, 1);
        checkNothing(consumer);
    }

    // -- transactions

    private static SimpleConsumer transaction(End end) throws Exception {
        Producer producer = opened(building().setTransactionChecker(message -> TransactionResolution.COMMIT).build());
        SimpleConsumer consumer = consumer();
        Transaction transaction = producer.beginTransaction();
        producer.send(message(0).build(), transaction);
        end.end(transaction);
        return consumer;
    }

    private static void commit() throws Exception {
        SimpleConsumer consumer = transaction(Transaction::commit);
        checkBodies(take(consumer, 1, 32), true, 0);
        checkNothing(consumer);
    }

    private static void rollback() throws Exception {
        checkNothing(transaction(Transaction::rollback));
    }

    private static void orphan() throws Exception {
        SimpleConsumer consumer = transaction(transaction -> { });
        checkBodies(take(consumer, 1, 32), true, 0);
        checkNothing(consumer);
    }

    // -- messages that come again

    private static void nack() throws Exception {
        Producer producer = producer();
        SimpleConsumer consumer = consumer();
        producer.send(message(0).build());
        MessageView first = next(consumer, Duration.ofSeconds(60));
        long began = System.nanoTime();
        consumer.changeInvisibleDuration(first, Duration.ofSeconds(3));
        MessageView second = next(consumer, HIDDEN);
        long took = msSince(began);
        check(took > 2000 && took < 15_000, "it came again after", took);
        check(first.getDeliveryAttempt() == 1 && second.getDeliveryAttempt() == 2, first, second);
        check(first.getMessageId().toString().equals(second.getMessageId().toString()), first, second);
        consumer.ack(second);
    }

    private static void redelivery() throws Exception {
        Producer producer = producer();
        SimpleConsumer consumer = consumer();
        producer.send(message(0).build());
        for (int attempt = 1; attempt <= 3; attempt++) {
            MessageView message = next(consumer, Duration.ofSeconds(10));
            check(message.getDeliveryAttempt() == attempt, message);
        }
    }

    // -- push consumers

    private static void push() throws Exception {
        Producer producer = producer();
        List<String> got = new CopyOnWriteArrayList<>();
        consume(got, message -> true);
        List<String> wanted = new ArrayList<>();
        for (int number = 0; number < 20; number++) {
            producer.send(message(number).build());
            wanted.add(number + "/1");
        }
        await(got, 20);
        check(new HashSet<>(got).equals(new HashSet<>(wanted)) && got.size() == 20, got);
        long began = System.nanoTime();
        producer.send(message(20).build());
        await(got, 21);
        check(msSince(began) < 2000, "a long poll was not answered on arrival");
    }

    private static void pushRetry() throws Exception {
        Producer producer = producer();
        List<String> got = new CopyOnWriteArrayList<>();
        consume(got, message -> message.getDeliveryAttempt() > 1);
        producer.send(message(0).build());
        await(got, 2);
        Thread.sleep(3000);
        check(got.equals(Arrays.asList("0/1", "0/2")), got);
    }

    private static void pushFifo() throws Exception {
        Producer producer = producer();
        List<String> got = new CopyOnWriteArrayList<>();
        consume(got, message -> !body(message).equals("1") || message.getDeliveryAttempt() > 1);
        for (int number = 0; number < 4; number++) {
            producer.send(message(number).setMessageGroup("one").build());
        }
        await(got, 5);
        check(got.equals(Arrays.asList("0/1", "1/1", "1/2", "2/1", "3/1")), got);
    }

    /** The group's messages are dead after their second attempt. */
    private static void dead() throws Exception {
        Producer producer = producer();
        List<String> got = new CopyOnWriteArrayList<>();
        consume(got, message -> false);
        String id = producer.send(message(0).build()).getMessageId().toString();
        await(got, 2);
        Thread.sleep(12_000);
        check(got.equals(Arrays.asList("0/1", "0/2")), got);
        SimpleConsumer letters = consumer("%DLQ%" + group, group + "-letters", FilterExpression.SUB_ALL);
        List<MessageView> found = take(letters, 1, 32);
        checkBodies(found, true, 0);
        check(found.get(0).getMessageId().toString().equals(id), found, id);
    }

    // -- lite topics

    private static void lite() throws Exception {
        Producer producer = producer();
        List<String> got = new CopyOnWriteArrayList<>();
        LitePushConsumer consumer = consumeLite(got);
        consumer.subscribeLite("one");
        consumer.subscribeLite("two");
        List<String> one = new ArrayList<>();
        List<String> two = new ArrayList<>();
        for (int number = 0; number < 30; number++) {
            String name = Arrays.asList("one", "two", "three").get(number % 3);
            producer.send(message(number).setLiteTopic(name).build());
            if (number % 3 < 2) {
                (number % 3 == 0 ? one : two).add(name + "/" + number);
            }
        }
        await(got, 20);
        Thread.sleep(1_000);
        List<String> found = new ArrayList<>(got);
        found.removeIf(each -> !each.startsWith("one/"));
        check(found.equals(one), got);
        found = new ArrayList<>(got);
        found.removeIf(each -> !each.startsWith("two/"));
        check(found.equals(two), got);
        check(got.size() == 20, got);
        consumer.unsubscribeLite("one");
        producer.send(message(30).setLiteTopic("one").build());
        producer.send(message(31).setLiteTopic("two").build());
        await(got, 21);
        Thread.sleep(1_000);
        check(got.subList(20, got.size()).equals(Arrays.asList("two/31")), got);
    }

    /** Of the group, one client only is subscribed to a lite topic; it may have two. */
    private static void liteExclusive() throws Exception {
        Producer producer = producer();
        List<String> one = new CopyOnWriteArrayList<>();
        List<String> other = new CopyOnWriteArrayList<>();
        LitePushConsumer first = consumeLite(one);
        first.subscribeLite("a");
        producer.send(message(0).setLiteTopic("a").build());
        await(one, 1);
        LitePushConsumer second = consumeLite(other);
        second.subscribeLite("a");
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (first.getLiteTopicSet().contains("a")) {
            check(System.nanoTime() < end, "the first client was not told of the second");
            Thread.sleep(20);
        }
        producer.send(message(1).setLiteTopic("a").build());
        await(other, 1);
        check(one.equals(Arrays.asList("a/0")) && other.equals(Arrays.asList("a/1")), one, other);
        second.subscribeLite("b");
        try {
            second.subscribeLite("c");
        } catch (ClientException expected) {
            check(String.valueOf(expected).toLowerCase().contains("quota"), expected);
            return;
        }
        throw new AssertionError("a third lite topic was not refused");
    }
}
