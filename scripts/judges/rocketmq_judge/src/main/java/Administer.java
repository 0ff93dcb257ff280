import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs commands of {@code mqadmin} in one process: a line each from the standard input: how many seconds it may take and
 * its words, between tabs. What a command prints follows, and then a line with {@code end}.
 *
 * <p>Words of its own: {@code @clients NAMESERVER TOPIC GROUP} starts a producer and a consumer and sends ten messages,
 * {@code @login KEY SECRET} lets later commands sign, {@code @logout} does not, {@code @send NAMESERVER TOPIC} and
 * {@code @consume NAMESERVER TOPIC GROUP} are a client of its own each.
 */
public class Administer {
    private static final List<AutoCloseable> open = new CopyOnWriteArrayList<>();
    private static final PrintStream told = System.out;

    private static volatile RPCHook hook;
    private static int instances;

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> given = Arrays.asList(line.split("\t", -1));
            long seconds = Long.parseLong(given.get(0));
            String[] words = given.subList(1, given.size()).toArray(new String[0]);
            ByteArrayOutputStream heard = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(heard, true, "UTF-8");
            System.setOut(out);
            System.setErr(out);
            Thread thread = new Thread(() -> run(words));
            thread.setDaemon(true);
            thread.start();
            thread.join(TimeUnit.SECONDS.toMillis(seconds));
            if (thread.isAlive()) {
                out.println("Administer: not done in " + seconds + " s");
                thread.interrupt();
            }
            out.flush();
            told.println(heard.toString("UTF-8"));
            told.println("end");
            told.flush();
        }
        for (AutoCloseable each : open) {
            each.close();
        }
        System.exit(0);
    }

    /** The commands: some can be run only once. */
    private static class Commands extends MQAdminStartup {
        static void renew() {
            SUB_COMMANDS.clear();
        }
    }

    private static void run(String[] words) {
        try {
            switch (words[0]) {
                case "@login":
                    hook = new AclClientRPCHook(new SessionCredentials(words[1], words[2]));
                    break;
                case "@logout":
                    hook = null;
                    break;
                case "@clients":
                    startClients(words[1], words[2], words[3]);
                    break;
                case "@send":
                    send(words[1], words[2]);
                    break;
                case "@consume":
                    consume(words[1], words[2], words[3]);
                    break;
                default:
                    Commands.renew();
                    MQAdminStartup.main0(words, hook);
            }
        } catch (MQBrokerException refusal) {
            System.out.println("refused with code " + refusal.getResponseCode() + ": " + refusal.getErrorMessage());
        } catch (MQClientException refusal) {
            System.out.println("refused with code " + refusal.getResponseCode() + ": " + refusal.getErrorMessage());
        } catch (Throwable fault) {
            fault.printStackTrace();
        }
    }

    private static DefaultMQProducer producer(String nameserver, boolean traces) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("mqadminProducers", hook, traces, null);
        producer.setNamesrvAddr(nameserver);
        producer.setInstanceName("producer" + instances++);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        return producer;
    }

    private static DefaultMQPushConsumer consumer(String nameserver, String topic, String group, boolean traces,
        AtomicInteger count) throws Exception {
        DefaultMQPushConsumer consumer =
            new DefaultMQPushConsumer(group, hook, new AllocateMessageQueueAveragely(), traces, null);
        consumer.setNamesrvAddr(nameserver);
        consumer.setInstanceName("consumer" + instances++);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            count.addAndGet(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void startClients(String nameserver, String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(nameserver, true);
        open.add(producer::shutdown);
        AtomicInteger count = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer(nameserver, topic, group, true, count);
        open.add(consumer::shutdown);
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(0);
        for (int number = 0; number < 10; number++) {
            Message message = new Message(topic, "odd", "key-" + number, ("body " + number).getBytes("UTF-8"));
            SendResult sent = number == 0 ? producer.send(message, queue) : producer.send(message);
            if (number == 0) {
                System.out.println("set message=" + sent.getOffsetMsgId());
                System.out.println("set unique=" + sent.getMsgId());
                System.out.println("set queue=" + sent.getMessageQueue().getQueueId());
                System.out.println("set offset=" + sent.getQueueOffset());
            }
        }
        for (int tenths = 0; count.get() < 10 && tenths < 200; tenths++) {
            Thread.sleep(100);
        }
        System.out.println("set client=" + consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId());
        System.out.println("consumed " + count.get());
        // Traces are sent a little later than what they are about, and offsets every five seconds.
        Thread.sleep(7_000);
    }

    private static void send(String nameserver, String topic) throws Exception {
        DefaultMQProducer producer = producer(nameserver, false);
        try {
            System.out.println(producer.send(new Message(topic, "x".getBytes("UTF-8"))).getSendStatus());
        } finally {
            producer.shutdown();
        }
    }

    private static void consume(String nameserver, String topic, String group) throws Exception {
        AtomicInteger count = new AtomicInteger();
        DefaultMQPushConsumer consumer = consumer(nameserver, topic, group, false, count);
        try {
            for (int tenths = 0; count.get() == 0 && tenths < 80; tenths++) {
                Thread.sleep(100);
            }
            System.out.println("consumed " + (count.get() > 0));
        } finally {
            consumer.shutdown();
        }
    }
}
